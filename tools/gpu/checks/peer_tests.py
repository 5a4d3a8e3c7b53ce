# SPDX-License-Identifier: Apache-2.0
"""Accelerate's own tests on the device with both packages: peer_tests.py FOLDER

FOLDER has Accelerate's source archive, unpacked (accelerate-*/), and the wheels of its tests that this Python lacks (wheels/*.whl); it
is carried to the machine and in no repository. Of the tests that Accelerate passes here, ours must pass 97 %; the others are listed.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

from result import figure, not_run, require

LEAST = 0.97
SECONDS_OF_A_TEST = 90
# The longest first; those that need a hub or packages that are on no such machine are left out.
FILES = ("test_big_modeling", "test_accelerator", "test_utils", "test_modeling_utils", "test_data_loader", "test_grad_sync", "test_hooks", "test_tracking",
         "test_state_checkpointing", "test_cli", "test_compile", "test_fp8", "test_kwargs_handlers", "test_memory_utils", "test_optimizer", "test_scheduler",
         "test_metrics", "test_offload", "test_multidevice", "test_activation_checkpointing_offload", "test_cpu", "test_logging", "test_imports")


class Packages:
    def __init__(self, folder, work):
        self.source = next(iter(sorted(folder.glob("accelerate-*/src/accelerate"))), None)
        self.work, self.bundle = work, pathlib.Path(os.environ["BUNDLE"])
        if self.source is not None:
            self.source = self.source.parents[1]
        self.site = work / "site"
        self.wheels = sorted(map(str, folder.glob("wheels/*.whl")))

    def prepare(self):
        if self.wheels:
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", self.site, *self.wheels], check=True)
        programs = self.work / "programs"
        programs.mkdir()
        program = programs / "accelerate"
        program.write_text(f'#!/bin/sh\nexec "{self.bundle}/bin/accel" "$@"\n')
        program.chmod(0o755)
        for who in ("ours", "theirs"):
            shutil.copytree(self.source, self.work / who)  # tests write beside themselves

    def environment(self, who, outcomes):
        plugin = self.bundle / "peer_tests"
        own = self.work / who
        path = [plugin / "alias", plugin, self.bundle / "python"] if who == "ours" else [plugin, own / "src"]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, self.site, os.environ.get("PYTHONPATH", "")))), "ACCEL_PEER_SOURCE": str(own), "ACCEL_PEER_OUTCOMES": str(outcomes),
                 "OMP_NUM_THREADS": "2", "HOME": str(self.work)}
        for variable in ("ACCELERATE_TORCH_DEVICE", "OUT", "SCRATCH"):
            found.pop(variable, None)
        if who == "ours":
            found["PATH"] = f"{self.work / 'programs'}{os.pathsep}{found['PATH']}"
        return found

    def run(self, who, file):
        """{test: outcome}"""
        outcomes = self.work / f"{who}_{file}"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outcomes", "--timeout", str(SECONDS_OF_A_TEST), f"tests/{file}.py"]
        done = subprocess.run(command, cwd=self.work / who, env=self.environment(who, outcomes), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", check=False)
        print(f"{who} {file}: {done.stdout.strip().splitlines()[-1:]}", flush=True)
        if who == "ours":
            print(done.stdout[-6000:], flush=True)
        return dict(line.rsplit(" ", 1) for line in outcomes.read_text().splitlines()) if outcomes.exists() else {}


def compare(theirs, ours):
    """(tests that Accelerate passes here, those of them that ours do not, with the outcome)"""
    good = sorted(test for test, outcome in theirs.items() if outcome == "passed")
    return good, {test: ours.get(test, "did not run") for test in good if ours.get(test) != "passed"}


def main():
    folder = pathlib.Path(sys.argv[1]) if sys.argv[1] else None
    if folder is None:
        not_run("the tests were not carried here: give their folder by $PEER_TESTS")
    packages = Packages(folder.resolve(), pathlib.Path.cwd())
    require(packages.source is not None, f"{folder} has no accelerate-*/src/accelerate; expected the unpacked source archive")
    packages.prepare()
    found, lock, kept = {"ours": {}, "theirs": {}}, threading.Lock(), pathlib.Path(os.environ["OUT"], "peer_tests.json")

    def work(job):
        outcomes = packages.run(*job)
        with lock:  # after each file, for a script that is stopped
            found[job[0]].update(outcomes)
            kept.write_text(json.dumps(found, indent=0))

    jobs = [(who, file) for file in FILES if (packages.source / f"tests/{file}.py").exists() for who in ("ours", "theirs")]
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        list(pool.map(work, jobs))
    good, others = compare(found["theirs"], found["ours"])
    for test, outcome in others.items():
        print(f"{outcome}: {test}")
    figure("peer_tests", theirs=len(good), ours=len(good) - len(others), others=others)
    require(good, "Accelerate passes none of its tests here")
    require(len(good) - len(others) >= LEAST * len(good), f"ours pass {len(good) - len(others)} of the {len(good)} that Accelerate passes; expected {LEAST:.0%}")


if __name__ == "__main__":
    main()
