#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what CI leaves out, because it takes hours, and writes what it found to docs/reliability.md.

usage: long_tests.py [--fuzz-seconds N] [--kills N] [--programs N] [--dry-run] [CHECK...]

Without names all checks run, in the order below. A check that was run replaces its line of the table; the others keep theirs.
Each has a build folder and a log of its own, build/long/NAME.log. Start it before a release, and after a change to what a
check is about.
"""

import argparse
import collections
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

import find_libtorch

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
LOGS = ROOT / "build" / "long"
SANITIZED = "build/asan -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false"
THREADS = "build/tsan -Doptimization=1 -Db_sanitize=thread -Db_lundef=false"
FUZZERS = tuple(sorted(path.name[:-len("_fuzz.cpp")] for path in ROOT.glob("tests/fuzz/*_fuzz.cpp")))
PYTHONS = ("3.11", "3.12", "3.13")
UNITS = "-Dunity=on -Dunity_size=12"  # sanitizers need more memory a line than a release build


def shell(command):
    """One check is a list of shell commands; the first that fails ends it."""
    return ["sh", "-ec", command]


def programs(count):
    """The commands of random programs: of the engine, of Python with models of this library, with torch's."""
    python, torch = (f"build/deps/{folder}/bin/python" for folder in ("python", "torch_python"))
    tests, launch = "bindings/python/tests", "build/release/src/cli/accel launch --cpu --num-processes 2 --"
    return [f"[ -x {torch} ] || {{ echo 'no Python with torch: tools/setup.sh --torch makes it'; exit 1; }}",
            "export PYTHONPATH=build/release/bindings/python ACCEL_PLUGIN_PATH=build/release/src/comm/ucx OMP_NUM_THREADS=1",
            f"ACCEL_TEST_PROGRAMS={count} build/release/tests/engine/engine_tests --gtest_filter='ShardedPrograms.*'",
            f"ACCEL_TORCH_PYTHON={torch} {python} {tests}/programs/programs_agree.py build/release/src/cli/accel {count}",
            f"{python} {tests}/programs/checkpoint_lives.py --count {count}",
            f"{torch} {tests}/programs/checkpoint_lives.py --with torch --count {count}",
            f"{torch} {tests}/loader_lives.py 0 {count}",
            f"{launch} {torch} {tests}/loader_lives.py 0 {count}"]


def checks(options):
    """{name: (what it looks for, shell commands)}"""
    fuzz = [f"build/fuzz/tests/fuzz/fuzz_{name} -max_total_time={options.fuzz_seconds} -print_final_stats=1 "
            f"build/long/corpus_{name} tests/fuzz/corpus/{name}" for name in FUZZERS]
    return {
        "single_files": ("each source compiles by itself, and the tests pass so", ["tools/test.sh --all -C build/develop"]),
        "one_unit_a_module": ("any number of sources can share a compilation: no names collide",
                              ["tools/build.sh -C build/units -Dunity=on -Dunity_size=60 -Dtests=false src/libaccel.a "
                               "src/comm/ucx/libaccel_ucx.so"]),
        "clang": ("a second compiler builds everything without a warning, and the tests pass so",
                  ["CC=clang CXX=clang++ tools/build.sh -C build/clang -Dunity=on -Dunity_size=20",
                   "meson test -C build/clang --no-rebuild --print-errorlogs --suite capi --suite engine --suite parity "
                   "--suite distributed"]),
        "address_sanitizer": ("memory errors and undefined behaviour in the tests of C API, engine, devices and parsers",
                              [f"tools/build.sh -C {SANITIZED} {UNITS}",
                               "meson test -C build/asan --no-rebuild --print-errorlogs --timeout-multiplier 6 "
                               "--suite capi --suite engine --suite parity --suite simulated --suite fuzz"]),
        "thread_sanitizer": ("data races in the communication, the loader's workers, the training loop, sharding, checkpoints "
                             "and the work of devices",
                             [f"tools/build.sh -C {THREADS} {UNITS} tests/engine/engine_tests src/comm/ucx/libaccel_ucx.so "
                              "tests/engine/libaccel_stub.so tests/devices/device_tests tests/devices/libvendor_device.so "
                              "tests/devices/libaccel_null.so tests/devices/libaccel_late.so tests/devices/libaccel_stream.so "
                              "tests/simulated_device/simulated_device_tests tests/simulated_device/libsimulated_device.so",
                              "meson test -C build/tsan --no-rebuild --print-errorlogs --timeout-multiplier 10 --suite engine "
                              "comm conformance conformance_combinations ucx_backend loader data streams training_loop ddp fsdp uneven_inputs "
                              "activation_checkpointing checkpoint checkpoint_faults background_save resume project "
                              "safetensors compressed_tensors dispatch",
                              "meson test -C build/tsan --no-rebuild --print-errorlogs --timeout-multiplier 10 --suite simulated "
                              "simulated_memory simulated_streams simulated_copies simulated_generator simulated_faults "
                              "simulated_random_programs simulated_training backend_names copies_ahead device_saves random_programs "
                              "staged_collectives staged_training streamed_offload"]),
        **{f"libtorch_{version}": (f"LibTorch {version}: engine, plugins, program, Python package, their tests on the processor and the simulated device",
                                   [f"tools/test_libtorch.sh {version}"]) for version in find_libtorch.pinned_versions(ROOT)},
        **{f"python_{version}": (f"Python {version}: the package is built for it and passes its tests", [f"tools/test_python.sh python{version}"])
           for version in PYTHONS},
        "newest_meson": ("Meson 1.12 configures, compiles and links everything; the other checks run with the one that is there",
                         ["python3 -m venv build/long/meson", "build/long/meson/bin/python -m pip install --quiet meson==1.12.1",
                          "build/long/meson/bin/meson setup -Dunity=on -Dunity_size=40 -Dbindings=python build/newest_meson",
                          "tools/build.sh -C build/newest_meson"]),
        "faults": (f"{options.kills} ranks killed, crashed, stopped at random places; the others say who, nothing is left",
                   ["tools/build.sh tests/distributed/rank_program src/cli/accel src/comm/ucx/libaccel_ucx.so",
                    f"ACCEL_PLUGIN_PATH=build/release/src/comm/ucx python3 tests/distributed/faults_test.py "
                    f"build/release/tests/distributed/rank_program {options.kills}"]),
        "launch_kills": ("200 launchers and ranks killed at random times by random signals; no process, port, file or shared "
                         "memory is left",
                         ["tools/build.sh src/cli/accel",
                          "python3 tests/distributed/launch_kills_test.py build/release/src/cli/accel 200"]),
        "failing_calls": ("each call to the system fails once, and with all that follow it, in start, training, loading, save and load; of two "
                          "ranks a part of them",
                          ["tools/build.sh tests/faults/failing_work src/comm/ucx/libaccel_ucx.so",
                           "ACCEL_PLUGIN_PATH=build/release/src/comm/ucx python3 tests/faults/failing_calls_test.py "
                           "build/release/tests/faults/failing_work --every"]),
        "fuzzers": (f"each parser, {options.fuzz_seconds} s of libFuzzer with both sanitizers",
                    ["CC=clang CXX=clang++ tools/build.sh -C build/fuzz -Dfuzz=true " +
                     " ".join(f"tests/fuzz/fuzz_{name}" for name in FUZZERS),
                     "mkdir -p " + " ".join(f"build/long/corpus_{name}" for name in FUZZERS), *fuzz]),
        "programs": ("a thousand random training programs: with several ranks, accumulation, sharding and a resume they come out the same; a "
                     "thousand trainings, killed in their saves, do as well; a thousand loaders go on from any boundary",
                     ["tools/build.sh -Dbindings=python,rust,julia,go", *programs(options.programs)]),
        "frameworks": ("the examples for Candle, Burn and tch, whose crates it fetches (a gigabyte), train as the others do",
                       ["tools/build.sh -Dbindings=python,rust,julia,go",
                        "examples/rust/vendor_frameworks.sh",
                        "meson test -C build/release --no-rebuild --print-errorlogs --timeout-multiplier 4 rust"]),
        "path_analysis": ("clang-tidy's path-sensitive analysis of each source",
                          ["tools/build.sh src/libaccel.a src/cli/accel src/comm/ucx/libaccel_ucx.so",
                           "python3 tools/check_tidy.py . build/release --paths"]),
    }


def run(name, commands):
    """(passed, seconds, the last line that says something)"""
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    environment = dict(os.environ, PATH=f"{ROOT / 'build/deps/bin'}:{os.environ['PATH']}")
    with open(LOGS / f"{name}.log", "w+") as log:
        status = subprocess.run(shell("\n".join(commands)), cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment,
                                check=False).returncode
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()]
    return status == 0, time.monotonic() - began, summary(lines)


def summary(lines):
    """What a log says in short: the counts of Meson or of tools/test.sh, the runs of the fuzzers, what random programs agree in, or its last
    line."""
    counts = [line for line in lines if re.fullmatch(r"\d+ passed, \d+ failed", line)]
    if counts:
        return counts[-1]
    meson = collections.Counter()  # of all the runs of `meson test` of a check
    for key, number in re.findall(r"^(Ok|Fail|Timeout|Skipped):\s+(\d+)$", "\n".join(lines), re.MULTILINE):
        meson[key] += int(number)
    if meson:
        return ", ".join(f"{number} {key.lower()}" for key, number in meson.items())
    agree = [line for line in dict.fromkeys(lines) if re.match(r"\d+ (programs|trainings|lives) .*\bagree\b", line)]
    if agree:
        return "; ".join(agree)
    runs = [int(line.split()[-1]) for line in lines if line.startswith("stat::number_of_executed_units")]
    if runs:
        return f"{sum(runs):,} inputs"
    return lines[-1][:160].replace("|", "\\|") if lines else "no output"


def processor():
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    return f"{fields.get('model name', 'unknown')}, family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}"


def record(name, looked_for, passed, seconds, said):
    """Replaces the check's line of the table, or adds it."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    cells = (name, looked_for, "passed" if passed else "FAILED", said, f"{seconds / 60:.0f} min",
             f"{datetime.date.today()}, {commit.stdout.strip()}")
    line = "| " + " | ".join(cells) + " |"
    text = PAGE.read_text()
    pattern = re.compile(rf"^\| {re.escape(name)} \|.*$", re.MULTILINE)
    text = pattern.sub(lambda _: line, text) if pattern.search(text) else text.rstrip("\n") + "\n" + line + "\n"
    PAGE.write_text(re.sub(r"^Processor of the latest run: .*$", f"Processor of the latest run: {processor()}.", text,
                           flags=re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fuzz-seconds", type=int, default=600, help="of each fuzzer (600)")
    parser.add_argument("--kills", type=int, default=500, help="ranks that are lost (500)")
    parser.add_argument("--programs", type=int, default=1000, help="random programs of each kind (1000)")
    parser.add_argument("--dry-run", action="store_true", help="say what each check would run")
    parser.add_argument("names", nargs="*", metavar="CHECK")
    options = parser.parse_args()
    known = checks(options)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"{unknown[0]} is not a check; expected some of: {', '.join(known)}")
    failed = []
    for name in options.names or known:
        looked_for, commands = known[name]
        print(f"{name}: {looked_for}", flush=True)
        if options.dry_run:
            print("\n".join(f"  {command}" for command in commands))
            continue
        passed, seconds, said = run(name, commands)
        print(f"{name}: {'passed' if passed else 'FAILED'} in {seconds / 60:.0f} min: {said}; {LOGS / name}.log", flush=True)
        record(name, looked_for, passed, seconds, said)
        failed += [] if passed else [name]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
