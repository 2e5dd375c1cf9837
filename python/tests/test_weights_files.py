"""Weights in safetensors files: what is saved is found and loaded again, and the forms of others are read. Files are the host's; so are the tensors."""

import json

import numpy as np
import pytest

import fp4pa
import reference

CPU = pytest.mark.parametrize("frame", ["numpy", "torch"], indirect=True)


def memory(frame, format, rows, cols, batch=1, layout="linear"):
    """Codes, scales and, for NVFP4, global scales, filled with what no file has."""
    codes = np.full(fp4pa.weight_code_bytes(format, rows, cols, batch), 0xA5, np.uint8)
    scales = np.full(fp4pa.weight_scale_bytes(format, rows, cols, batch, scale_layout=layout), 0xA5, np.uint8)
    made = [frame.array(codes), frame.array(scales)]
    return made + [frame.array(np.full(batch, -1, np.float32))] if format == "nvfp4" else made


def write_safetensors(path, tensors, metadata=None):
    """Eight bytes of the header's length, the header, the bytes: `tensors` is name -> (dtype's name, array)."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, a) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for _, a in tensors.values()))


@CPU
@pytest.mark.parametrize("layout", ["linear", "blocked_128x4"])
@pytest.mark.parametrize("format", ["mxfp4", "nvfp4"])
@pytest.mark.parametrize("batch", [1, 3])
def test_round_trip(frame, rng, tmp_path, format, layout, batch):
    w = rng.standard_normal((batch, 33, 72)).astype(np.float32)
    memories = memory(frame, format, 33, 72, batch, layout)
    weight = fp4pa.quantize_weight(frame.array(w), *memories, format=format, scale_layout=layout)
    path = str(tmp_path / "weight.safetensors")
    fp4pa.save_weight(path, "layers.0.up", weight)
    assert fp4pa.find_weight(path, "layers.0.up") == dict(format=format, scale_layout=layout, rows=33, cols=72, batch=batch)
    loaded = memory(frame, format, 33, 72, batch, layout)
    back = fp4pa.load_weight(path, "layers.0.up", *loaded)
    for a, b in zip(memories, loaded):
        np.testing.assert_array_equal(frame.numpy(b), frame.numpy(a))
    assert (back.rows, back.cols, back.batch, back.format, back.scale_layout) == (33, 72, batch, format, layout)
    x = frame.array(rng.standard_normal((batch, 2, 72)).astype(np.float16))  # what is loaded is a weight that works
    outs = [frame.zeros((batch, 2, 33)), frame.zeros((batch, 2, 33))]
    for out, one in zip(outs, (weight, back)):
        fp4pa.linear(x, one, out, workspace=frame.zeros(fp4pa.linear_workspace_bytes(x, one, out), np.uint8))
    np.testing.assert_array_equal(frame.numpy(outs[1]), frame.numpy(outs[0]))
    assert np.linalg.norm(frame.numpy(outs[0])) > 1


@CPU
def test_gpt_oss(frame, rng, tmp_path):
    w = rng.standard_normal((2, 5, 64)).astype(np.float32)
    codes, scales = reference.encode(w, "mxfp4")
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"mlp_blocks": ("U8", reference.pack(codes).reshape(2, 5, 2, 16)), "mlp_scales": ("U8", scales)})
    assert fp4pa.find_weight(str(path), "mlp") == dict(format="mxfp4", scale_layout="linear", rows=5, cols=64, batch=2)
    got = memory(frame, "mxfp4", 5, 64, 2)
    fp4pa.load_weight(str(path), "mlp", *got)
    np.testing.assert_array_equal(frame.numpy(got[0]), reference.pack(codes).reshape(-1))
    np.testing.assert_array_equal(frame.numpy(got[1]), scales.reshape(-1))


@CPU
def test_model_opt(frame, rng, tmp_path):
    w = rng.standard_normal((5, 64)).astype(np.float32)
    codes, scales = reference.encode(w, "nvfp4", global_scale=0.01)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"q.weight": ("U8", reference.pack(codes)), "q.weight_scale": ("F8_E4M3", scales),
                             "q.weight_scale_2": ("F32", np.array(0.01, np.float32))})
    assert fp4pa.find_weight(str(path), "q") == dict(format="nvfp4", scale_layout="linear", rows=5, cols=64, batch=1)
    got = memory(frame, "nvfp4", 5, 64)
    fp4pa.load_weight(str(path), "q", *got)
    np.testing.assert_array_equal(frame.numpy(got[0]), reference.pack(codes).reshape(-1))
    np.testing.assert_array_equal(frame.numpy(got[1]), scales.reshape(-1))
    assert frame.numpy(got[2]) == np.float32(0.01)


@CPU
def test_refusals(frame, rng, tmp_path):
    path = str(tmp_path / "weight.safetensors")
    fp4pa.save_weight(path, "w", fp4pa.quantize_weight(frame.array(rng.standard_normal((33, 72)).astype(np.float32)), *memory(frame, "mxfp4", 33, 72)))

    def refused(kind, match, call, *args):
        with pytest.raises(kind, match=match) as raised:
            call(*args)
        assert getattr(raised.value, "status", "kFileError") == "kFileError"

    refused(fp4pa.Error, "no FP4 weight 'v'.*w.codes", fp4pa.find_weight, path, "v")
    refused(fp4pa.Error, "No such file", fp4pa.find_weight, str(tmp_path / "none"), "w")
    refused(fp4pa.Error, "not a regular file", fp4pa.find_weight, str(tmp_path), "w")
    codes, scales = memory(frame, "mxfp4", 33, 72)
    refused(ValueError, "codes has 1583 bytes; allowed: 1584", fp4pa.load_weight, path, "w", codes[1:], scales)
    refused(ValueError, "scales has 98 bytes; allowed: 99", fp4pa.load_weight, path, "w", codes, scales[1:])
    refused(ValueError, "global_scales are given.*mxfp4", fp4pa.load_weight, path, "w", codes, scales, frame.zeros(1))
    assert (frame.numpy(codes) == 0xA5).all() and (frame.numpy(scales) == 0xA5).all()
    nvfp4 = memory(frame, "nvfp4", 33, 72)
    fp4pa.save_weight(path, "w", fp4pa.quantize_weight(frame.array(rng.standard_normal((33, 72)).astype(np.float32)), *nvfp4, format="nvfp4"))
    refused(ValueError, "global_scales is None.*nvfp4", fp4pa.load_weight, path, "w", *nvfp4[:2])


def test_files_are_the_hosts(cuda_frame, tmp_path):
    codes, scales = memory(cuda_frame, "mxfp4", 33, 72)
    weight = fp4pa.Fp4Weight(codes, scales, 33, 72)
    with pytest.raises(ValueError, match="GPU"):
        fp4pa.save_weight(str(tmp_path / "w"), "w", weight)
    assert not list(tmp_path.iterdir())


def test_paths(tmp_path, rng):
    """A path may be a pathlib.Path, and nothing of a name is lost."""
    codes, scales = (np.zeros(n, np.uint8) for n in (fp4pa.weight_code_bytes("mxfp4", 4, 32), fp4pa.weight_scale_bytes("mxfp4", 4, 32)))
    weight = fp4pa.Fp4Weight(codes, scales, 4, 32)
    fp4pa.save_weight(tmp_path / "wäge", "w", weight)
    assert fp4pa.find_weight(tmp_path / "wäge", "w")["rows"] == 4
    with pytest.raises((ValueError, TypeError)):
        fp4pa.save_weight(f"{tmp_path}/a\0b", "w", weight)
    with pytest.raises(ValueError, match="name has a zero byte at 1"):
        fp4pa.save_weight(tmp_path / "wäge", "w\0x", weight)
    with pytest.raises(ValueError, match="name has a zero byte at 1"):
        fp4pa.find_weight(tmp_path / "wäge", "w\0x")
    assert [p.name for p in tmp_path.iterdir()] == ["wäge"]
