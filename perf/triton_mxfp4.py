"""A plain MXFP4 quantiser in Triton, the peer of fp4pa_quantize: f32 in groups of 32, one E8M0 scale each (floor of the largest
exponent), E2M1 codes rounded to nearest even, the even element in the low nibble. Finite values; not for NaN or infinity.

With TRITON_INTERPRET=1 it runs on the host; perf/peers.py compares what it writes on the GPU with libfp4pa's CPU back end.
"""
import triton
import triton.language as tl

GROUP = 32


@triton.jit
def quantize_kernel(x, codes, scales, groups, GROUPS: tl.constexpr):
    """GROUPS groups a program. x [groups, 32] f32, codes [groups, 16] bytes, scales [groups] bytes."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    there = group < groups
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    bits = tl.load(x + at, mask=there[:, None], other=0.0).to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    # The largest element's exponent less that of 6.0, E2M1's largest; magnitudes compare as their bits do.
    scale = tl.maximum((tl.max(magnitude, axis=1) >> 23) - 2, 0)
    reciprocal = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    y = magnitude.to(tl.float32, bitcast=True) * reciprocal[:, None]
    # Halfway between two codes goes to the even one.
    code = ((y > 0.25).to(tl.int32) + (y >= 0.75).to(tl.int32) + (y > 1.25).to(tl.int32) + (y >= 1.75).to(tl.int32)
            + (y > 2.5).to(tl.int32) + (y >= 3.5).to(tl.int32) + (y > 5.0).to(tl.int32))
    code = code | ((bits >> 28) & 8)
    low, high = tl.split(tl.reshape(code, (GROUPS, 16, 2)))
    packed = (low | (high << 4)).to(tl.uint8)
    tl.store(codes + group[:, None] * 16 + tl.arange(0, 16)[None, :], packed, mask=there[:, None])
    tl.store(scales + group, scale.to(tl.uint8), mask=there)


def quantize(x, codes, scales, groups_per_program, num_warps=4):
    """x [rows, cols] f32, contiguous, cols a multiple of 32; codes [rows, cols / 2], scales [rows, cols / 32], both uint8."""
    groups = x.shape[0] * x.shape[1] // GROUP
    quantize_kernel[(triton.cdiv(groups, groups_per_program),)](x, codes, scales, groups, GROUPS=groups_per_program,
                                                                num_warps=num_warps)
