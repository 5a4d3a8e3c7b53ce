#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each message on docs/troubleshooting.md is provoked here, or named with the test that does: troubleshooting_test.py ROOT BUILD.

`...` on the page stands for what differs from run to run. Of a message that another test provokes, that test has the words (or their
beginning, where it looks for no more), and the sources have all of them, so that the page has none that nothing says any more.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import named_tests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
from run_ranks import free_port

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
MESSAGES = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
PYTHON = BUILD / "bindings/python"

# One process that does one wrong thing after another, and says what it hears.
ONE_PROCESS = """
import fractions, pathlib, pickle
import accel
from accel import Accelerator, ProjectConfiguration, nn

def wrong(action):
    try:
        action()
    except Exception as error:
        print(error)

wrong(lambda: Accelerator(mixed_precision="fp16"))
accelerator = Accelerator(project_config=ProjectConfiguration(project_dir="project", automatic_checkpoint_naming=True))
numbers = accel.ones(2)
numbers.requires_grad = True
wrong(lambda: accelerator.backward(numbers * 2))
wrong(lambda: accel.ops.aten.no_such_operator(numbers))
wrong(lambda: accel.ones(2).to("xpu"))
wrong(lambda: accelerator.load_state("nowhere"))
wrong(lambda: accelerator.load_state())
accelerator.prepare(nn.Linear(2, 2))
accelerator.save_state()
weights = pathlib.Path("project/checkpoints/checkpoint_0/model.safetensors")
content = weights.read_bytes()
weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
wrong(lambda: accelerator.load_state())
of_torch = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}, fractions.Fraction(1, 2), [])
pathlib.Path("objects.bin").write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in of_torch))
wrong(lambda: accel.load("objects.bin"))
"""

# Two processes that do not do the same, of which the first says what it hears.
TWO_PROCESSES = """
import time
import accel
from accel import Accelerator, nn

class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, numbers):
        return self.used(numbers)

def wrong(action):
    try:
        action()
    except Exception as error:
        print(error, flush=True)

def train(model):
    for _ in range(2):
        accelerator.backward(model(accel.ones(1, 2)).mean())

accelerator = Accelerator()
rank = accelerator.process_index
wrong(lambda: accelerator.gather(accel.ones(2)) if rank else accelerator.reduce(accel.ones(2)))
wrong(lambda: accelerator.reduce(accel.ones(2 + rank)))
model = accelerator.prepare(Halves())
wrong(lambda: train(model))
wrong(lambda: time.sleep(7) if rank else accelerator.reduce(accel.ones(2)))
"""
STATE = "import accel; accel.Accelerator()"
ENDS_LATE = 'if [ $RANK = 0 ]; then sleep 1; kill -KILL $$; fi; trap "exit 3" TERM; sleep 30 & wait'
TYPING_ERROR = "distributed_type: NO\\nnum_proceses: 2\\n"
PLACE = "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT"

# What to run, and the messages that it provokes. Commands of the shell in an empty folder.
PROVOKED = {
    "accel launch --num-processes 2 -- nowhere/program": [
        "'...' was not found; expected the path of a program, or a name that is in PATH"],
    "accel launch --num-process 2 -- true": ["'...' is not an option"],
    f"printf '{TYPING_ERROR}' > typing.yaml && accel launch --config-file typing.yaml -- true": ["unknown names: ..."],
    f"{PLACE} RANK=1 ACCEL_TIMEOUT_MS=300 python3 -c '{STATE}'": ["cannot reach rank 0 at ..."],
    f"{PLACE} RANK=2 python3 -c '{STATE}'": ["the process index is ...; expected 0 to ..."],
    f"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 python3 -c '{STATE}'": ["... processes are on this host and MASTER_ADDR is not set"],
    "accel launch --num-machines 2 --machine-rank 1 --main-process-ip 127.0.0.1 --main-process-port $PORT --num-processes 2 --rdzv-timeout 1 -- true": [
        "this host cannot reach the coordinator at ..."],
    f"accel launch --num-processes 2 -- sh -c '{ENDS_LATE}'": ["ended after SIGTERM", "killed, often by the out-of-memory killer"],
    "accel launch --num-processes 2 -- sh -c 'kill -ABRT $$'": ["SIGABRT: aborted, by a failed assertion or an uncaught exception"],
    f"ACCEL_LIBTORCH=/nowhere python3 -c '{STATE}'": ["ACCEL_LIBTORCH=...: expected the folder of a LibTorch, with lib/... in it"],
    # A program elsewhere than the plugin, which it needs for ranks.
    "env -u ACCEL_PLUGIN_PATH $BUILD/tests/engine/engine_tests --gtest_filter=LoaderSeed.OfRank0CountsForAllRanks": [
        "the plugin libaccel_...so is in none of ...; build it, or set ACCEL_PLUGIN_PATH to its folder"],
    # The launcher would have set OMP_WAIT_POLICY.
    f"export {PLACE} LOCAL_WORLD_SIZE=2 OMP_NUM_THREADS=64 ACCEL_LOG=warning; RANK=1 LOCAL_RANK=1 python3 -c '{STATE}' & RANK=0 LOCAL_RANK=0 python3 -c '{STATE}'": [
        "OMP_NUM_THREADS is ..."],
    "python3 one.py": [
        "mixed_precision is fp16 and the device is the CPU",
        "expected one element: take its mean or sum, or give a gradient of this shape",
        "LibTorch has no operator ...",
        "this LibTorch was built without ...",
        "'...' does not exist; expected the folder of a checkpoint",
        "there is no checkpoint in '...'",
        "is damaged",
        "which is not read, and nothing of it is executed"],
    "ACCEL_TIMEOUT_MS=5000 accel launch --num-processes 2 -- python3 two.py": [
        "...; all ranks must make the same calls in the same order",
        "all ranks must pass the same shape, dtype and options",
        "... trainable parameters got no gradient in the last backward: ...",
        "... timed out after ... ms: no answer from ..."],
}

# What needs more than a command: another LibTorch, a port in use, a file that is cut while it is mapped, another system.
# {message: "FILE: what stands in it"}
ELSEWHERE = {
    "signal (6): Aborted": "tests/packaging/trial_steps.py: without LD_PRELOAD",
    "musl is not supported": "tests/packaging/fetcher_test.py: musl is not supported",
    "there is no LibTorch": "bindings/python/tests/test_import.py: test_no_libtorch_names_the_version_and_the_command",
    "..., but ... was built for LibTorch ...": "tests/torch/other_libtorch.c: check_calls_refused",
    "undefined symbol: ...": "tests/torch/other_libtorch.c: undefined symbol",
    "port ... is used by another program; choose another one with --main-process-port":
        "tests/distributed/launch_hosts_test.py: test_a_port_that_is_used",
    "LibTorch was asked for ... before its library was loaded":
        "tests/cuda/accelerator_library_test.py: test_who_chooses_the_cpu_pays_nothing",
    "there is ..., but ...": "tests/cuda/accelerator_library_test.py: test_driver_without_the_library",
    "ranks ... and ... are both on ...": "tests/cuda/accelerator_library_test.py: test_ranks_that_share_a_card",
    "became shorter while it was read; expected that files which are in use are replaced, not changed":
        "tests/engine/dispatch_test.cpp: AFileThatWasCutOffIsAnError",
}
COMPILER_OF_RUST = ("cannot add ...Result<...", "cannot apply unary operator ...Result<...", "binary assignment operation ...")
ELSEWHERE.update(dict.fromkeys(COMPILER_OF_RUST, "bindings/rust/accel/src/tensor.rs: compile_fail"))
OF_OTHERS = ("undefined symbol: ...", "signal (6): Aborted", *COMPILER_OF_RUST)  # said by the dynamic linker, Julia and Rust


def pattern_of(message):
    return re.compile(".*".join(re.escape(part) for part in message.split("...")))


@functools.cache
def sources():
    """The texts of each folder of sources; those that continue on the next line are one."""
    texts = {}
    for path in [*ROOT.glob("src/**/*.[ch]pp"), *ROOT.glob("bindings/python/accel/**/*.py"), *ROOT.glob("packaging/*.in")]:
        texts[path.parent] = texts.get(path.parent, "") + re.sub(r'"\s*f?"', "", path.read_text())
    return texts.values()


def parts_of(message):
    return [part.strip(" ;:,'") for part in message.split("...") if re.search(r"\w{3}", part)]


class Messages(unittest.TestCase):
    def test_each_of_the_page_is_provoked(self):
        provoked = [message for messages in PROVOKED.values() for message in messages]
        self.assertGreater(len(MESSAGES), 25)
        self.assertEqual(sorted(MESSAGES), sorted([*provoked, *ELSEWHERE]))

    def test_those_of_other_tests_are_in_the_sources_and_there(self):
        for message, test in ELSEWHERE.items():
            with self.subTest(message):
                self.assertEqual(named_tests.missing(ROOT, test), "")
                parts = parts_of(message)
                if message not in OF_OTHERS:
                    self.assertTrue(any(all(part in text for part in parts) for text in sources()), "no source says it")
                looked_for = re.sub(r'"\s*r?f?"', "", (ROOT / test.partition(": ")[0]).read_text())
                self.assertTrue(any(part[:14] in looked_for for part in parts), f"{test} does not look for it")

    @unittest.skipUnless(list((PYTHON / "accel").glob("_capi*.so")), "the package of Python is not built")
    def test_provoked(self):
        for command, messages in PROVOKED.items():
            with self.subTest(command), tempfile.TemporaryDirectory(prefix="accel-trouble-") as folder:
                said = self.said_by(command, pathlib.Path(folder))
                for message in messages:
                    self.assertRegex(said, pattern_of(message))

    @staticmethod
    def said_by(command, folder):
        (folder / "one.py").write_text(ONE_PROCESS)
        (folder / "two.py").write_text(TWO_PROCESSES)
        names = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "ACCELERATE_", "ACCEL_", "LIBACCEL", "OMP_", "GOMP_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        environment = {**kept, "BUILD": str(BUILD), "PORT": str(free_port()), "PATH": f"{BUILD / 'src/cli'}:{os.environ['PATH']}", "PYTHONPATH": str(PYTHON),
                       "PYTHONDONTWRITEBYTECODE": "1", "LIBACCEL": str(BUILD / "src"), "ACCEL_PLUGIN_PATH": str(BUILD / "src/comm/ucx"),
                       "ACCELERATE_USE_CPU": "1", "HF_HOME": str(folder)}
        if "OMP_NUM_THREADS" not in command:
            environment["OMP_NUM_THREADS"] = "1"
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return done.stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
