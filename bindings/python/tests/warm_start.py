# SPDX-License-Identifier: Apache-2.0
"""Processes that run scripts, forked from one that has done their imports already: torch's take longer than most scripts.

As a program it is such a process. It takes a line of JSON for each script, and answers with the number of its process; or for the end
of one, and answers with the exit status, null while it runs.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import types


OF_TORCH = "import torch._dynamo"  # which its optimizers import
OF_TRANSFORMERS = f"{OF_TORCH}; from transformers import BertForMaskedLM, GPT2LMHeadModel, LlamaForCausalLM"  # four seconds more
OF_ACCEL = "from accel.engine import libtorch; libtorch.load()"  # the engine; behind a call of it no fork may come


class WarmProcess:
    """What the tests use of subprocess.Popen."""

    _servers = {}

    def __init__(self, place, imports, arguments, environment, folder, output=None):
        """`place` is its number among those that run together: each has a server of its own, so that their hashes differ. It runs in
        `folder`, and what it writes goes to files there, or in `output`."""
        key = (place, imports)
        if key not in self._servers:
            # A process that is forked must have one thread.
            self._servers[key] = subprocess.Popen([sys.executable, __file__, imports], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                  text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self._server = self._servers[key]
        self._files = [(output or folder) / f"{stream}{place}.txt" for stream in ("out", "err")]
        self.returncode = None
        self.pid = self._ask(arguments=[str(argument) for argument in arguments], environment=environment, folder=str(folder),
                             out=str(self._files[0]), err=str(self._files[1]))

    def _ask(self, **request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def wait(self, timeout=60):
        if self.returncode is None:
            self.returncode = self._ask(pid=self.pid, timeout=timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def communicate(self, timeout):
        self.wait(timeout)
        return tuple(file.read_text() for file in self._files)

    def kill(self):
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def become(job):
    """This process, a new one, runs a script as `python SCRIPT ...` would."""
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    for stream, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, stream)
        os.close(file)
    sys.stdin = open(0, closefd=False)
    sys.argv = job["arguments"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = sys.argv[0]
    with open(main.__file__, encoding="utf-8") as script:
        exec(compile(script.read(), main.__file__, "exec"), main.__dict__)


def end_without_the_imports(job):
    """Runs a script and ends as an interpreter does, but for the objects of the imports: to release those of torch takes a second."""
    status = None
    try:
        become(job)
    except SystemExit as given:
        status = given.code
        if status is not None and not isinstance(status, int):
            print(status, file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.PyDLL(None).exit(status & 0xFF if isinstance(status, int) else int(status is not None))


def end_of(pid, timeout):
    """The exit status of a process; None if it runs longer."""
    deadline = time.monotonic() + timeout
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended or time.monotonic() > deadline:
            return os.waitstatus_to_exitcode(status) if ended else None
        time.sleep(0.005)


def serve(imports):
    """The job of a new process, in that process; None at the end."""
    exec(imports, {})
    if "torch" in sys.modules:
        gc.collect()
        gc.freeze()  # a collection in a new process would copy them all
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            answer = end_of(request["pid"], request["timeout"])
        else:
            answer = os.fork()
            if answer == 0:
                return request
        print(json.dumps(answer), flush=True)
    return None


if __name__ == "__main__":
    if given := serve(sys.argv[1]):
        (end_without_the_imports if "torch" in sys.modules else become)(given)
