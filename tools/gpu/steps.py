# SPDX-License-Identifier: Apache-2.0
"""The steps of a run on a device, in the order in which they begin, and where each makes sense.

A step is a command. It passes with status 0; status 77 means that it could not run here, and its last line why. What it prints as a
line of JSON is a figure of the results. A step named for `cuda` alone says why the others do not run it.
"""

import dataclasses
import functools
import importlib.util
import os
import pathlib
import sys
import typing

EVERYWHERE = ("cuda", "sim", "cpu")
DEVICES = ("cuda", "sim")
CHECKS = pathlib.Path(__file__).parent / "checks"
OF_THE_CPU = "the CPU is what the others are compared with"
NO_KERNELS = "only a GPU has kernels in a trace"
NO_SPEED = "speeds are those of a GPU"


@dataclasses.dataclass(frozen=True)
class Context:
    bundle: pathlib.Path
    facts: dict
    torch: pathlib.Path
    out: pathlib.Path
    scratch: pathlib.Path
    device: str
    environment: dict

    @property
    def short(self):
        """A rehearsal: as little work as shows that the step works."""
        return self.device != "cuda"

    def program(self, name):
        unpacked = self.scratch / "bin" / name
        return str(unpacked if unpacked.exists() else self.bundle / "bin" / name)

    def size(self, whole, short):
        return str(short if self.short else whole)


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    row: str  # of the table in docs/devices.md, "The script for a GPU"
    limit: float
    command: "typing.Callable[[Context], list]"
    phase: str = "check"
    where: tuple = EVERYWHERE
    why: str = ""  # it runs nowhere else
    needs: tuple = ()  # files of the bundle
    packages: tuple = ()
    environment: "typing.Callable[[Context], dict]" = lambda _: {}

    def reason_not_to_run(self, context):
        if context.device not in self.where:
            return f"{self.why} ({context.device})"
        for file in self.needs:
            if not (context.bundle / file).exists():
                return f"the bundle has no {file}"
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{sys.executable} has no package {package}"
        return None


def check(name, *arguments):
    """The command of checks/NAME.py; an argument is a text, or a function of the context."""
    return lambda context: [sys.executable, str(CHECKS / f"{name}.py"), *(word if isinstance(word, str) else word(context) for word in arguments)]


def program(name, *arguments):
    return lambda context: [context.program(name), *(word if isinstance(word, str) else word(context) for word in arguments)]


def sized(whole, short):
    return lambda context: context.size(whole, short)


def scratch(name):
    return lambda context: str(context.scratch / name)


def device(context):
    return context.device


def staged(context):
    """Several ranks share one card: their collectives go through host memory."""
    return {"ACCEL_BACKEND": "cuda:staged"} if context.device == "cuda" else {}


def on_device(context):
    return {"ACCEL_TEST_DEVICE": context.device}


def device_tests(context):
    return [context.program("device_tests"), f"--gtest_filter={'CopiesAhead*' if context.short else '-BackendNames*'}"]


def orders(*tests):
    return lambda context: [sys.executable, str(context.bundle / "tests/devices/device_order_test.py"), context.device,
                            *(f"DeviceOrder.{test}" for test in tests)]


def ordered(context):
    """Any three of the first steps come in any order; in a rehearsal any two."""
    return {"ACCEL_TEST_ORDERS": context.size(3, 2)}


def agree(*tests):
    def command(context):
        names = [f"DevicesAgree.{name}" for name in tests]
        return [sys.executable, str(context.bundle / "tests/devices/devices_agree_test.py"), context.program("accel"), context.device, *names]
    return command


def losses(*precisions):
    return check("losses", *precisions)


_first = functools.partial(Step, phase="first")
_check = functools.partial(Step, phase="check")
_alone = functools.partial(Step, phase="alone")

CHECK_STEPS = [
    # Without the device nothing else is run.
    _first("device", "machine, loads, env, device", 60, check("device")),
    # The longest first.
    _check("peer_tests", "Accelerate's own tests", 270, check("peer_tests", lambda c: os.environ.get("PEER_TESTS", "")),
           where=("cuda",), why="the tests of the CPU are tools/peer_tests.sh", packages=("torch", "pytest", "accelerate", "transformers")),
    _check("machine", "machine, loads, env, device", 30, check("machine")),
    _check("loads", "machine, loads, env, device", 40, check("loads")),
    _check("env", "machine, loads, env, device", 40, program("accel", "env")),
    _check("hello", "machine, loads, env, device", 40, program("hello")),
    _check("hidden_cards", "machine, loads, env, device", 60, check("hidden_cards"), where=("cuda",), why="it hides cards of NVIDIA's driver"),
    _check("page_locked", "machine, loads, env, device", 60, check("page_locked"), where=DEVICES, why=OF_THE_CPU),
    _check("order", "order", 90, orders("test_each_order_by_the_variable", "test_a_seed_before_the_device_is_that_of_the_device"),
           where=DEVICES, why=OF_THE_CPU, environment=ordered),
    _check("order_torch", "order", 180, orders("test_each_order_with_torch"), where=DEVICES, why=OF_THE_CPU, packages=("torch",),
           environment=ordered),
    _check("nccl", "suites on the device", 90, program("engine_tests", "--gtest_filter=Nccl*"), where=("cuda",), why="NCCL is for cards of NVIDIA",
           needs=("lib/accel/libaccel_nccl.so",)),
    _check("graph_plugin", "captured steps", 90, program("engine_tests", "--gtest_filter=GraphPlugin*"), where=("cuda",),
           why="other devices need no plugin", needs=("lib/accel/libaccel_cuda_graphs.so",)),
    _check("device_tests", "suites on the device", 150, device_tests, where=DEVICES, why=OF_THE_CPU, needs=("bin/device_tests.gz",), environment=on_device),
    _check("two_ranks_on_one_card", "suites on the device", 60, check("refusal"), where=("cuda",), why="only NCCL refuses ranks that share a card"),
    _check("agree_1_rank", "agreement", 150, agree("test_one_rank"), where=DEVICES, why=OF_THE_CPU),
    _check("agree_2_ranks", "agreement", 200, agree("test_two_ranks_that_share_a_device"), where=("cuda",),
           why="suite simulated has it"),
    _check("agree_resume", "agreement", 150, agree("test_resume"), where=DEVICES, why=OF_THE_CPU, environment=staged),
    *[_check(f"example_{name}", "examples, GPT", 60, program(name, *arguments))
      for name, arguments in (("train", ()), ("custom_module", ()), ("own_gradients", ()), ("checkpoint", (scratch("example_checkpoint/saved"),)))],
    _check("gpt_losses", "examples, GPT", 120, losses("no", "bf16", "fp16")),
    _check("captured_step", "captured steps", 120, check("captured")),
    _check("ddp", "FSDP, DDP", 150, check("parallel", "ddp"), environment=staged),
    _check("fsdp", "FSDP, DDP", 150, check("parallel", "fsdp"), environment=staged),
    _check("killed_rank", "faults", 90, check("killed_rank"), environment=staged),
    _check("sanitizer", "compute-sanitizer", 150, check("sanitizer"), where=("cuda",), why="compute-sanitizer is for cards of NVIDIA"),
]

ALONE_STEPS = [
    _alone("device_faults", "faults", 90, lambda c: [sys.executable, str(c.bundle / "tests/devices/device_faults_test.py"), c.device],
           where=DEVICES, why="the CPU takes the memory of the machine"),
    _alone("filled_card", "faults", 60, check("filled_card"), where=("cuda",), why="the memory of the others is that of one process"),
    _alone("checkpoints", "checkpoints", 90, check("saves", scratch("saved"), sized(4608, 12))),
    _alone("big_model", "big model", 60, check("big_model", "accel", scratch("llama"))),
    _alone("big_model_torch", "big model", 90, check("big_model", "torch", scratch("torch_llama")), where=("cuda",),
           why="suite bindings has it", packages=("torch", "transformers")),
    _alone("profile", "profile", 60, check("profiles", "training"), where=("cuda",), why=NO_KERNELS),
    _alone("profile_big_model", "big model", 60, check("profiles", "big_model", scratch("profiled_llama")), where=("cuda",), why=NO_KERNELS),
]


def bench(name, *arguments):
    return program(f"bench_{name}", "--device", device, *arguments)


def peer(workload, *arguments):
    return check("speed", workload, *arguments)


def speeds(round_number):
    """By turns, so that what changes on the machine meanwhile meets all of them."""
    gpt, gpt2, mlp = ["train_gpt", sized(10, 1)], ["train_gpt2_small", sized(16, 1)], ["train_mlp", sized(100, 2)]
    small = ("--blocks", sized("4", "1"))
    torch, accelerate = ("torch",), ("torch", "accelerate")
    # In small with float32: processors without instructions for bf16 need minutes.
    rows = [("gpt_bf16_c", 30, bench("train_gpt", "--precision", sized("bf16", "no"), "--steps", sized(10, 1), *small), (), EVERYWHERE),
            ("mlp_c", 30, bench("train_mlp", "--steps", sized(100, 2), "--width", sized(512, 16)), (), EVERYWHERE),
            ("overhead_c", 30, bench("overhead", "--steps", sized(500, 10), "--repeat", sized(3, 1)), (), EVERYWHERE)]
    for precision in ("bf16", "no"):
        if precision == "no":
            rows.append(("gpt_no_c", 30, bench("train_gpt", "--steps", sized(10, 1)), (), ("cuda",)))
        rows += [(f"gpt_{precision}_{who}", 40, peer(*gpt, who, precision), packages, ("cuda",))
                 for who, packages in (("ours", torch), ("accelerate", accelerate), ("fused", accelerate))]
    rows.append(("gpt2_c", 40, bench("train_gpt", "--model", "gpt2-small", "--precision", "bf16", "--steps", sized(16, 1)), (), ("cuda",)))
    rows += [(f"gpt2_{who}", 60, peer(*gpt2, who, "bf16"), (*packages, "transformers"), ("cuda",))
             for who, packages in (("ours", torch), ("fused", accelerate), ("compile", accelerate), ("ours_compile", torch))]
    rows += [(f"mlp_{who}", 30, peer(*mlp, who, "no"), packages, ("cuda",)) for who, packages in (("ours", torch), ("fused", accelerate))]
    rows += [(f"overhead_{who}", 30, peer("overhead", sized(500, 5), who, "no"), packages, ("cuda",))
             for who, packages in (("ours", torch), ("accelerate", accelerate))]
    return [Step(f"speed_{name}_{round_number}", "speed", limit, command, "speed", where, NO_SPEED, (), packages)
            for name, limit, command, packages, where in rows]


def steps_on(kind):
    return [*CHECK_STEPS, *ALONE_STEPS, *(step for round_number in ((1, 2, 3) if kind == "cuda" else (1,)) for step in speeds(round_number))]
