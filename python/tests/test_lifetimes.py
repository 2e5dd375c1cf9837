"""How long memory lives, and what calls of several threads have to do with each other."""

import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import fp4pa
from scenes import Scene, int32, kv_tensor


def test_plan_keeps_the_cache(frame):
    scene = Scene(frame, [70, 33])
    q, q_lens = scene.queries(4, [1, 1]), [1, 1]
    want, plan = scene.expected(q, q_lens), scene.plan(4, q_lens)
    del scene.cache
    gc.collect()
    spoil = [frame.array(np.full(1 << 12, 0xFF, np.uint8)) for _ in range(64)]  # what would take the cache's place, were it free
    scene.check(scene.run(plan, q, q_lens), want)
    del spoil


def test_references_are_given_back(frame):
    """A cache and a plan keep their tensors until they go. Calls and refusals keep none."""
    data = frame.zeros((4, 2, 16, 128), np.uint8)
    free = sys.getrefcount(data)
    cache = fp4pa.KvCache(fp4pa.KvTensor("bf16", data), kv_tensor(frame, "bf16", 4, 16, 2, 64))
    plan = fp4pa.AttentionPlan(cache, 2, max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_len=16, q_dtype="f32", o_dtype="f32")
    q, slots = frame.zeros((1, 2, 64)), int32(frame, 0)
    counts = [sys.getrefcount(t) for t in (q, slots)]
    for bad in (False, True) * 3:
        try:
            fp4pa.append(cache, q, q, slots if not bad else int32(frame, 0, 1))
            fp4pa.gather(cache, slots, q, q)
        except ValueError:
            assert bad
    assert [sys.getrefcount(t) for t in (q, slots)] == counts
    del cache
    gc.collect()
    assert sys.getrefcount(data) > free
    del plan
    gc.collect()
    assert sys.getrefcount(data) == free


def test_nothing_is_left_at_exit():
    """With FP4PA_LOG=debug nanobind reports on stderr what has leaked of its types and functions; caches and plans that modules still hold are no leak."""
    script = """
import numpy as np, fp4pa
pool = lambda: fp4pa.KvTensor("bf16", np.zeros((4, 2, 16, 128), np.uint8))
cache = fp4pa.KvCache(pool(), pool())
plan = fp4pa.AttentionPlan(cache, 2, max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_len=16)
for call in (lambda: fp4pa.append(cache, None, None, None), lambda: fp4pa.append(cache, 1, 2, 3), lambda: fp4pa.KvCache(pool(), pool(), rotation=5)):
    try: call()
    except Exception as e: kept = e
"""
    environment = dict(os.environ, FP4PA_LOG="debug")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0 and "leak" not in done.stderr


def test_other_threads_go_on_meanwhile():
    """The interpreter's lock is released while the library works: this thread wakes up every 0.1 ms of a call of some 50 ms."""
    x = np.ones((2048, 4096), np.float32)
    codes, scales = (np.zeros(n, np.uint8) for n in (fp4pa.quantized_code_bytes("nvfp4", *x.shape), fp4pa.quantized_scale_bytes("nvfp4", *x.shape)))
    wakes, seen = [0], []

    def work():
        seen.append(wakes[0])
        fp4pa.quantize(x, codes, scales, format="nvfp4", nvfp4_scale="four_over_six", num_threads=1)
        seen.append(wakes[0])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # so that the lock changes hands only where it is given up
    try:
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            wakes[0] += 1
            time.sleep(1e-4)
    finally:
        sys.setswitchinterval(interval)
    assert seen[1] - seen[0] > 5


def test_calls_from_several_threads(frame):
    """One plan, a workspace for each thread; the interpreter's lock is released in between."""
    scene = Scene(frame, [300, 200])
    q_lens, q = [8, 8], scene.queries(8, [8, 8])
    plan = scene.plan(8, q_lens, num_threads=1)
    want = scene.run(plan, q, q_lens)
    results, failures = [None] * 4, []

    def work(i):
        try:
            for _ in range(5):
                results[i] = scene.run(plan, q, q_lens)
            with pytest.raises(fp4pa.Error, match=f'backend is "none{i}"'):  # the detail of a failure is its thread's own
                fp4pa.gather(scene.cache, int32(frame, 0), frame.zeros((1, 2, 64)), backend=f"none{i}")
        except BaseException as error:  # a thread's exceptions would only be printed
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    for o, lse in results:
        np.testing.assert_array_equal(o, want[0])
        np.testing.assert_array_equal(lse, want[1])
