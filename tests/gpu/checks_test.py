#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of the script fail when what they look at is wrong, and read what tools and traces say."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

import bundles
import peer_tests
import sanitizer
import saves_limits
import shared_objects
import steps
from device_trace import Trace

CHECKS = bundles.GPU / "checks"


def kernel(begin, end, stream, correlation):
    return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": begin, "dur": end - begin, "args": {"stream": stream, "correlation": correlation}}


def copy(begin, end, stream, pinned):
    name = f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)"
    return {"ph": "X", "cat": "gpu_memcpy", "name": name, "ts": begin, "dur": end - begin, "args": {"stream": stream}}


def call(name, begin, duration, correlation=None):
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": begin, "dur": duration, "args": {"correlation": correlation}}


class Steps(unittest.TestCase):
    def test_fields_are_lists_of_names(self):
        """A name instead of a list of one would be taken letter by letter, and the step never run."""
        for kind in steps.EVERYWHERE:
            for step in steps.steps_on(kind):
                for field in (step.where, step.needs, step.packages):
                    self.assertIsInstance(field, tuple, step.name)


class Traces(unittest.TestCase):
    def test_a_trace(self):
        trace = Trace([call("cudaLaunchKernel", 0, 1, 1), call("cudaLaunchKernel", 1, 1, 2), kernel(10, 20, 7, 1), kernel(15, 30, 9, 2), kernel(40, 50, 7, 3),
                       copy(12, 18, 8, True), copy(31, 39, 8, True), copy(41, 49, 7, False), call("cudaStreamSynchronize", 50, 2000),
                       call("cudaMemcpyAsync", 60, 5), {"ph": "i", "name": "mark", "ts": 1}])
        self.assertEqual(trace.facts(2), {
            "kernels": 3, "streams": 2, "correlated_share": 2 / 3, "busy_share": 30 / 40, "copies_to_device": 3, "pinned_copies": 2,
            "copies_beside_kernels": 1, "host_waits_a_step": 0.5, "waited_ms_a_step": 1.0})

    def test_a_trace_without_a_gpu(self):
        trace = Trace([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 4}])
        self.assertEqual((trace.kernels, trace.busy_share(), trace.correlated_share(), trace.copies_beside_kernels()), ([], 0.0, 0.0, 0))


class Judgements(unittest.TestCase):
    def test_memcheck(self):
        for expected, status, said in (
                (True, 0, "========= ERROR SUMMARY: 0 errors"), (False, 86, "========= Invalid __global__ read\n========= ERROR SUMMARY: 2 errors"),
                (False, 0, "========= ERROR SUMMARY: 1 error"), (False, 1, "the program failed"), (False, 0, "no summary"),
                (None, 255, "========= Error: Target application terminated before first instrumented API call\n========= ERROR SUMMARY: 0 errors")):
            self.assertEqual(sanitizer.judge(status, said)[0], expected, said)

    def test_tests_of_both_packages(self):
        theirs = {"a::one": "passed", "a::two": "passed", "a::three": "failed", "b::four": "passed"}
        good, others = peer_tests.compare(theirs, {"a::one": "passed", "a::two": "failed", "a::three": "passed"})
        self.assertEqual((good, others), (["a::one", "a::two", "b::four"], {"a::two": "failed", "b::four": "did not run"}))

    def test_how_long_a_save_may_hold(self):
        self.assertFalse(saves_limits.held_too_long(1.1, 1.0, 0.02))
        self.assertTrue(saves_limits.held_too_long(1.2, 1.0, 0.02))
        self.assertTrue(saves_limits.held_too_long(1.397, 1.2, 0.02))


class Breaks(unittest.TestCase):
    """Stand-ins of what a check starts, which are wrong."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-checks-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()

    def program(self, name, text):
        file = self.folder / "bin" / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    def check(self, name, *arguments, **variables):
        environment = {**os.environ, "BUNDLE": str(self.folder), "DEVICE": "cuda", "SCRATCH": str(self.folder), "PYTHONPATH": str(CHECKS),
                       "ACCEL_PROGRAM": str(self.folder / "bin/accel"), **variables}
        return subprocess.run([sys.executable, CHECKS / f"{name}.py", *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def losses(self, no, bf16, first=5.5):
        self.program("train_gpt", f"""#!/bin/sh
case "$*" in *bf16*) last={bf16} ;; *) last={no} ;; esac
echo "step 1/60  loss {first}  100 tokens/s  1 s left"
echo "step 60  validation loss $last  (3.0 bits a byte)"
""")
        return self.check("losses", "no", "bf16")

    def test_losses(self):
        self.assertEqual(self.losses(2.6619, 2.67).returncode, 0)
        self.assertIn("bf16 ends at 2.72, fp32 at 2.6619", self.losses(2.6619, 2.72).stderr)
        self.assertIn("fell from 5.5 to 5.4 only", self.losses(5.4, 5.4).stderr)
        self.program("train_gpt", "#!/bin/sh\necho 'CUDA error: an illegal memory access was encountered' >&2\nexit 1\n")
        self.assertIn("illegal memory access", self.check("losses", "no").stderr)

    def parallel(self, losses):
        self.program("accel", f"""#!{sys.executable}
import json, sys
ranks = int(sys.argv[sys.argv.index("--num-processes") + 1])
json.dump({{"ranks": ranks, "device": "cuda:0", "losses": {losses!r}[ranks], "step_ms": 1, "state": "backend = cuda:staged"}}, open(sys.argv[-1], "w"))
""")
        return self.check("parallel", "fsdp")

    def test_parallel(self):
        self.assertEqual(self.parallel({1: [2.0, 1.5], 2: [2.00005, 1.50005]}).returncode, 0)
        self.assertIn("step 1: the loss of one rank is 1.5, of two 1.51", self.parallel({1: [2.0, 1.5], 2: [2.0, 1.51]}).stderr)
        self.assertIn("the losses do not fall", self.parallel({1: [2.0, 2.1], 2: [2.0, 2.1]}).stderr)

    def test_the_refusal_of_two_ranks_on_one_card(self):
        self.program("hello", "#!/bin/sh\n")
        self.program("accel", "#!/bin/sh\necho '[0,1]'\n")
        self.assertIn("were not refused", self.check("refusal").stderr)
        self.program("accel", "#!/bin/sh\necho 'NCCL error: invalid usage'; exit 1\n")
        self.assertNotEqual(self.check("refusal").returncode, 0)
        self.program("accel", "#!/bin/sh\necho 'ranks 0 and 1 are both on the GPU H100; NCCL needs a GPU for each rank: start as many ranks as there are GPUs, or let ranks share one by ACCEL_BACKEND=cuda:staged'; exit 1\n")
        self.assertEqual(self.check("refusal").returncode, 0)

    def test_tests_that_were_not_carried(self):
        done = self.check("peer_tests", "")
        self.assertEqual((done.returncode, done.stdout.strip()), (77, "the tests were not carried here: give their folder by $PEER_TESTS"))
        self.assertIn("expected the unpacked source archive", self.check("peer_tests", str(self.folder)).stderr)


class Objects(unittest.TestCase):
    def test_the_run_path_of_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder, "one.c"), pathlib.Path(folder, "one")
            source.write_text("int main(void) { return 0; }\n")
            for flag in ("--enable-new-dtags", "--disable-new-dtags"):
                subprocess.run(["cc", source, "-o", program, f"-Wl,{flag},-rpath,/somewhere/else/lib"], check=True)
                shared_objects.replace_run_path(program, "$ORIGIN/../lib")
                self.assertEqual(shared_objects.run_path(program), "$ORIGIN/../lib")
                subprocess.run([program], check=True)
                with self.assertRaisesRegex(shared_objects.ObjectError, "has no place for"):
                    shared_objects.replace_run_path(program, "$ORIGIN/" + "x" * 40)

    def test_a_library_that_is_on_no_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cc", "-shared", "-o", f"{folder}/libnowhere.so.3", "-xc", "/dev/null", "-Wl,-soname,libnowhere.so.3"], check=True)
            subprocess.run(["cc", "-shared", "-o", f"{folder}/one.so", "-xc", "/dev/null", "-xnone", "-Wl,--no-as-needed", f"{folder}/libnowhere.so.3"], check=True)
            with self.assertRaisesRegex(shared_objects.ObjectError, "one.so needs libnowhere.so.3, which is not on this machine"):
                shared_objects.lacking([pathlib.Path(folder, "one.so")], ())
            self.assertEqual(shared_objects.lacking([pathlib.Path(folder, "one.so")], {"libnowhere.so.3"}), {})


if __name__ == "__main__":
    unittest.main()
