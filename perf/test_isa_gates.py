#!/usr/bin/env python3
"""The gates on machine code must be able to fail: each case plants one change and looks for its complaint."""
import contextlib
import copy
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import isa_gates

LAUNCH = {"threads": 256, "dynamic_shared": 70000, "blocks": 0}


def kernel(**changes):
    return {"threads": 256, "registers": 120, "spill": 0, "local_bytes": 0, "static_shared": 0, "packed_fma": 0,
            "instructions": 1000, "loop_instructions": 400, "matrix": {"HMMA": 16}, **changes}


def finished(arch="sm_80", launch=None, **changes):
    numbers = kernel(**changes)
    isa_gates.finish(arch, numbers, {**LAUNCH, **(launch or {})})
    return numbers


def complaints(built, arch="sm_80", table=None):
    """What `check` says of one kernel against the same one as it was."""
    table = table or {arch: {"k": {"reason": "as it is", **finished(arch)}}}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        failed = isa_gates.check(table, {arch: {"k": built}}, [])
    return failed, said.getvalue()


class Gates(unittest.TestCase):
    def test_nothing_moved(self):
        self.assertEqual(complaints(finished())[0], 0)

    def test_a_kernel_is_the_row_that_its_name_says(self):
        for function, row in (("_ZN5fp4pa4cuda6attendILi22EEEvNS0_10AttendArgsE", 22), ("_ZN5fp4pa4cuda13attend_nativeILi3EEEvNS0_10AttendArgsE", 3),
                              ("_ZN5fp4pa4cuda11attend_sm90ILi0EEEvNS0_10AttendArgsE", 0), ("fp4pa_attend_7", 7)):
            self.assertEqual(isa_gates.row_number(function), row)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            isa_gates.row_number("fp4pa_merge")

    def test_spills_and_stack(self):
        for key in ("spill", "local_bytes"):
            failed, said = complaints(finished(**{key: 8}))
            self.assertEqual(failed, 1)
            self.assertIn(f"{key}: 0 -> 8", said)

    def test_a_few_bytes_of_shared_memory(self):
        failed, said = complaints(finished(launch={"dynamic_shared": 70128}))
        self.assertEqual(failed, 1)
        self.assertIn("dynamic_shared: 70000 -> 70128", said)

    def test_occupancy_falls_with_shared_memory_alone(self):
        failed, said = complaints(finished(launch={"dynamic_shared": 90000}))
        self.assertEqual(failed, 1)
        self.assertIn("occupancy_warps: 16 -> 8", said)

    def test_fewer_threads(self):
        failed, said = complaints(finished(launch={"threads": 128}))
        self.assertEqual(failed, 1)
        self.assertIn("launch_threads: 256 -> 128", said)

    def test_a_launch_that_does_not_fit_fails_whatever_the_table_says(self):
        for arch, limit in (("sm_80", 163), ("sm_90", 227), ("sm_120", 99), ("gfx942", 64), ("gfx950", 160)):
            static = isa_gates.RESERVED_IN_STATIC.get(arch, 0)
            fits = finished(arch, {"dynamic_shared": limit * 1024}, static_shared=static)
            self.assertGreater(fits["occupancy_warps"], 0, arch)
            self.assertEqual(complaints(fits, arch, {arch: {"k": {"reason": "full", **fits}}})[0], 0)
            too_large = finished(arch, {"dynamic_shared": limit * 1024 + 128}, static_shared=static)
            failed, said = complaints(too_large, arch, {arch: {"k": {"reason": "too large", **too_large}}})
            self.assertEqual(failed, 1, arch)
            self.assertIn("not one block fits", said)

    def test_more_threads_than_compiled_for(self):
        launched = finished(launch={"threads": 512})
        failed, said = complaints(launched, table={"sm_80": {"k": {"reason": "too many", **launched}}})
        self.assertEqual(failed, 1)
        self.assertIn("launched with 512 threads, compiled for 256", said)

    def test_occupancy(self):
        # A100: 65536 registers, 64 warps, 164 KB, of which a block has 1 KB for the system.
        self.assertEqual(isa_gates.nvidia_occupancy("sm_80", 32, 256, 0), 64)
        self.assertEqual(isa_gates.nvidia_occupancy("sm_80", 255, 128, 0), 8)
        self.assertEqual(isa_gates.nvidia_occupancy("sm_80", 32, 128, 80 * 1024), 8)
        # MI300X and MI355X: 512 registers a lane of a SIMD, 64 and 160 KB of LDS.
        self.assertEqual(isa_gates.amd_occupancy("gfx942", 128, 256, 0), 16)
        self.assertEqual(isa_gates.amd_occupancy("gfx942", 128, 256, 33 * 1024), 4)
        self.assertEqual(isa_gates.amd_occupancy("gfx950", 128, 256, 33 * 1024), 16)
        # As many blocks as the launch has for a unit.
        self.assertEqual(finished("gfx950", {"blocks": 1, "dynamic_shared": 1280})["occupancy_warps"], 4)

    def test_launches_are_required(self):
        with tempfile.TemporaryDirectory() as build:
            with self.assertRaisesRegex(SystemExit, "isa_shared.json is missing"):
                isa_gates.load_launches(build)
            launches = {"cuda/instances.hpp": {"sm_80": [LAUNCH]}}
            with open(os.path.join(build, "isa_shared.json"), "w", encoding="utf-8") as text:
                json.dump(launches, text)
            self.assertEqual(isa_gates.load_launches(build), launches)
        self.assertEqual(isa_gates.launch_of(launches, "cuda/instances.hpp", "sm_80", 0), LAUNCH)
        for missing in (("cuda/instances.hpp", "sm_80", 1), ("cuda/instances.hpp", "sm_90", 0), ("gemm", "sm_80", "gemm(Nvfp4, 8)")):
            with self.assertRaisesRegex(SystemExit, "says nothing of"):
                isa_gates.launch_of(copy.deepcopy(launches), *missing)


if __name__ == "__main__":
    unittest.main()
