#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that are killed at random places, in their saves above all, and go on from the newest checkpoint until one reaches the end.

usage: checkpoint_lives.py [--with LIBRARY] [--first SEED] [--count N]

Each must come out as the one that nobody killed, bit for bit unless its number of ranks changes or a window of a sharded model was open. No
checkpoint is lost that a save has confirmed, and whatever can be loaded has the weights of its step. Models are of this library ("accel") or
torch's ("torch").
"""

import argparse
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback

import life as lives
from programs_agree import TOLERANCES, numbers

KILLS = 3  # of a training at most
SECONDS = 120  # of a life, on a busy machine


class Wrong(Exception):
    """What a training did that it must not."""


class Job:
    """The ranks of a life, forked from here: imports are made, and no call of the engine."""

    def __init__(self, plan, ranks, folder, tries_all):
        from accel.state.environment import get_free_port
        self._out, report = os.pipe()
        self._rest = b""
        self._errors = os.path.join(folder, "errors.txt")
        environment = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": get_free_port()}
        self._alive = []
        for rank in range(ranks):
            process = os.fork()
            if process == 0:
                self._become(plan, {**environment, "RANK": rank, "LOCAL_RANK": rank}, folder, tries_all, report)
            self._alive.append(process)
        os.close(report)

    def _become(self, plan, environment, folder, tries_all, report):
        """A rank, which never returns."""
        status = 1
        try:
            os.environ.update({name: str(value) for name, value in environment.items()})
            errors = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(errors, 1)
            os.dup2(errors, 2)

            def write(line):
                data = line.encode() + b"\n"
                while data:
                    data = data[os.write(report, data):]
            lives.live(plan, os.path.join(folder, "project"), tries_all, write)
            status = 0
        except BaseException:  # a process that was forked must not go on with what its parent does
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def messages(self):
        """What the first rank reports, until it ends."""
        deadline = time.monotonic() + SECONDS
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                yield json.loads(line)
            if not select.select([self._out], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Wrong(f"a life takes more than {SECONDS} s: {self._said()}")
            if not (read := os.read(self._out, 1 << 16)):
                return
            self._rest += read

    def kill(self, order):
        """The ranks in this order, as a launcher would: soon after the first one."""
        for rank in order:
            os.kill(self._alive[rank], signal.SIGKILL)
            time.sleep(0.002)

    def end(self):
        """Waits for all ranks; raises if one failed."""
        statuses = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in self._alive]
        self._alive = []
        if any(statuses):
            raise Wrong(f"ranks ended with {statuses}: {self._said()}")

    def _said(self):
        """What the ranks wrote."""
        with open(self._errors, errors="replace") as file:
            return file.read()[-3000:]

    def close(self):
        """Leaves no process behind."""
        for process in self._alive:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        os.close(self._out)


def check_equal(what, found, expected, tolerance):
    if isinstance(expected, dict):
        if set(found) != set(expected):
            raise Wrong(f"{what} has {sorted(found)}, expected {sorted(expected)}")
        for key in expected:
            check_equal(f"{what}, {key}", found[key], expected[key], tolerance)
        return
    ours, theirs = numbers(found), numbers(expected)
    if len(ours) != len(theirs) or any(abs(mine - other) > tolerance * max(1, abs(other)) for mine, other in zip(ours, theirs)):
        raise Wrong(f"{what}: {found}, expected {expected}")


class Training:
    """A plan, what becomes of it when nobody kills it, and what its lives have confirmed so far."""

    def __init__(self, seed, library, folder):
        self.rng = random.Random(f"{seed} kills")
        self.plan, self.folder = lives.plan(seed, library), folder
        program = self.plan["program"]
        self.tolerance = 0 if self.plan["is_exact"] else TOLERANCES[program["precision"]]
        self.weights, self.outcome, self.save_seconds = {}, None, 0.0
        self.begun, self.confirmed, self.newest, self.kills, self.kills_in_saves = {0}, 0, 0, 0, 0

    def run_unkilled(self):
        folder = os.path.join(self.folder, "unkilled")
        os.mkdir(folder)
        job = Job(self.plan, self.plan["ranks"][0], folder, False)
        try:
            began = 0.0
            for kind, what, *more in job.messages():
                if kind in ("begins", "at"):
                    self.weights[what] = more[0]
                elif kind == "saving":
                    began = time.monotonic()
                elif kind == "saved":
                    self.save_seconds = max(self.save_seconds, time.monotonic() - began)
                elif kind == "ends":
                    self.outcome = what
            job.end()
        finally:
            job.close()

    def check(self, kind, what, more):
        if kind in ("found", "begins", "at"):
            check_equal(f"weights of step {what} ({kind})", more[0], self.weights[what], self.tolerance)
        if kind == "refused" and more[0]:
            raise Wrong(f"the checkpoint {what} cannot be loaded: {more[1]}")
        if kind in ("found", "begins") and what not in self.begun:
            raise Wrong(f"a checkpoint of step {what}, where none was saved: {sorted(self.begun)}")
        if kind == "begins":
            visible = len(more[1])
            limit = self.plan["total_limit"] if self.plan["naming"] == "automatic" else 1
            if what < self.newest:
                raise Wrong(f"it begins at step {what}, but the save of step {self.newest} was confirmed")
            if visible < min(self.confirmed, limit or self.confirmed) or limit and visible > limit + 1:
                raise Wrong(f"there are {more[1]}, of {self.confirmed} that were confirmed and a limit of {limit}")
        if kind == "saving":
            self.begun.add(what)
        if kind == "saved":
            self.confirmed, self.newest = self.confirmed + 1, what
        if kind == "ends":
            check_equal("the end", what, self.outcome, self.tolerance)

    def run_life(self, is_last):
        """Whether it reached its end."""
        rng = self.rng
        in_save = rng.random() < 0.7
        after = rng.randint(1, 3) if in_save else rng.randint(1, 2 * self.plan["steps"])  # saves, or messages
        delay = rng.random() * (1.2 * self.save_seconds if in_save else 0.01)
        ranks = rng.choice(self.plan["ranks"])
        job = Job(self.plan, ranks, self.folder, rng.random() < 0.4)
        ended, saved = False, False
        try:
            for kind, what, *more in job.messages():
                self.check(kind, what, more)
                ended, saved = ended or kind == "ends", saved or kind == "saved"
                after -= kind == "saving" if in_save else 1
                if after == 0 and not ended and not is_last:
                    time.sleep(delay)
                    job.kill(rng.sample(range(ranks), ranks))
                    self.kills, self.kills_in_saves = self.kills + 1, self.kills_in_saves + in_save
                    for late, its, *rest in job.messages():  # what it said meanwhile
                        self.check(late, its, rest)
                    return False
            job.end()
        finally:
            job.close()
        if not ended:
            raise Wrong("a life ended without an end")
        if saved and (left := self.hidden()):
            raise Wrong(f"{left} are left after a save")
        return True

    def hidden(self):
        project = os.path.join(self.folder, "project")
        return [name for folder in (project, os.path.join(project, lives.CHECKPOINTS)) if os.path.isdir(folder)
                for name in os.listdir(folder) if name.startswith(".")]

    def run(self):
        self.run_unkilled()
        os.mkdir(os.path.join(self.folder, "project"))
        while not self.run_life(self.kills == KILLS):
            pass


def run(seed, library):
    """(kills, those in saves) of the training of a seed."""
    folder = tempfile.mkdtemp(prefix="accel-lives-")
    training = Training(seed, library, folder)
    try:
        training.run()
    except Wrong as wrong:
        raise Wrong(f"training {seed}: {wrong}\n{training.plan}\nafter {training.kills} kills. Again: "
                    f"{os.path.relpath(__file__)} --with {library} --first {seed} --count 1") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return training.kills, training.kills_in_saves


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--with", dest="library", choices=("accel", "torch"), default="accel")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=15)
    options = parser.parse_args()
    if options.library == "torch":
        import torch._dynamo  # which torch's optimizers import
    from accel.engine import libtorch
    libtorch.load()
    kills, in_saves, failures = 0, 0, 0
    for seed in range(options.first, options.first + options.count):
        try:
            of_seed = run(seed, options.library)
        except Wrong as wrong:
            print(wrong, flush=True)
            failures += 1
        else:
            kills, in_saves = kills + of_seed[0], in_saves + of_seed[1]
    if failures:
        print(f"{failures} of {options.count} trainings differ")
        return 1
    print(f"{options.count} trainings with {options.library} agree with those that nobody killed: {kills} kills, {in_saves} in a save")
    return 0


if __name__ == "__main__":
    sys.exit(main())
