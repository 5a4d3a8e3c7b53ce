# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter while threads of the library are in callbacks, or on their way to them."""

import os
import subprocess
import sys
import textwrap

import pytest

from warm_start import OF_ACCEL, WarmProcess

ROWS = """
    import faulthandler, threading, time
    faulthandler.enable()  # says which thread crashed
    import accel
    from accel import Accelerator, DataLoader, nn

    class Rows:
        def __len__(self):
            return 10000

        def __getitem__(self, index):
            return index
"""
PROGRAMS = {
    "a loop that was left": """
        loader = DataLoader(Rows(), batch_size=2, num_workers=2)
        for step, batch in enumerate(loader):
            if step == 3:
                break
        print("done")
        """,
    "an iterator that is open": """
        loader = DataLoader(Rows(), batch_size=2, num_workers=2)
        iterator = iter(loader)
        next(iterator)
        print("done")
        """,
    "after end_training()": """
        accelerator = Accelerator(cpu=True)
        loader = accelerator.prepare(DataLoader(Rows(), batch_size=2, num_workers=2))
        next(iter(loader))
        accelerator.end_training()
        print("done")
        """,
    "a daemon thread": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

            def forward(self, x):
                return self.layer(x)

        model = Net()

        def work():
            while True:
                model(accel.ones(1, 2))

        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.1)
        print("done")
        """,
    "a daemon thread that stays in its call": """
        import os, sys
        sys.setswitchinterval(100)  # it leaves the interpreter in its calls only

        class Last:
            def __init__(self, thread):
                self.thread, self.sleep, self.list = str(thread.native_id), time.sleep, os.listdir

            def __del__(self):
                self.sleep(0.3)
                print("done" if self.thread in self.list("/proc/self/task") else "the interpreter has killed it")

        x = accel.ones(1)

        def double():
            while True:
                x + x

        thread = threading.Thread(target=double, daemon=True)
        thread.start()
        threading.last = Last(thread)  # the thread keeps what is in this module
        time.sleep(0.1)
        """,
    "a finalizer": """
        class Last:
            def __init__(self):
                self.apply, self.x = accel.utils.recursively_apply, accel.ones(1)

            def __del__(self):
                print("done" if self.apply(lambda x: x + x, self.x).item() == 2 else "wrong")

        last = Last()
        """,
    "a caught Ctrl-C": """
        import os, signal

        class Slow(Rows):
            def __getitem__(self, index):
                time.sleep(0.02)
                return index

        try:
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()  # it may ring before this returns
            for batch in DataLoader(Slow(), 2, num_workers=2):
                pass
        except KeyboardInterrupt:
            print("done")
        """,
}
TIMES, AT_ONCE = 20, 5
FRESH = 2  # of them begin with their imports, the others behind those


def run(program, folder):
    """How a program ends: its status, output and errors, several times; forked from a process with the library but for the first ones."""
    ends = []
    script = folder / "script.py"
    script.write_text(textwrap.dedent(ROWS) + textwrap.dedent(program))
    while len(ends) < TIMES:
        started = [WarmProcess(place, OF_ACCEL, [script], dict(os.environ), folder) if ends or place >= FRESH else
                   subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for place in range(AT_ONCE)]
        try:
            for process in started:
                out, err = process.communicate(timeout=100)
                ends.append((process.returncode, out, err))
        finally:
            for process in started:
                process.kill()
                process.wait()
    return ends


# Regression: a loop with workers that was left early aborted Python at its end; so did an open iterator, a daemon thread, a
# caught Ctrl-C.
# Regression: a daemon thread of Python that returned from a call while the interpreter ended crashed in it, or was killed.
@pytest.mark.combinations
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_end_well(name, tmp_path):
    assert [end for end in run(PROGRAMS[name], tmp_path) if end != (0, "done\n", "")] == []


# Regression: an exception lost its exit status in a program with running workers.
def test_an_error_keeps_its_exit_status(tmp_path):
    for status, _, errors in run("""
            loader = DataLoader(Rows(), batch_size=2, num_workers=2)
            for step, batch in enumerate(loader):
                if step == 3:
                    raise ValueError("mine")
            """, tmp_path):
        assert status == 1 and errors.rstrip().endswith("ValueError: mine")


def test_the_main_thread_works_on_at_the_end():
    """In a function of atexit that was there before the library, and so runs behind its own."""
    program = "import atexit\nimport accel\natexit.register(lambda: print(model(accel.ones(1, 2)).shape))\n"
    text = program + textwrap.dedent(ROWS) + textwrap.dedent("""
        class Net(nn.Module):
            def forward(self, x):
                return x + x

        model = Net()
        """)
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "(1, 2)\n", "")


def test_a_function_of_atexit_may_wait_for_a_daemon_thread():
    """One that was registered before the library."""
    program = "import atexit\natexit.register(lambda: end())\n" + textwrap.dedent(ROWS) + textwrap.dedent("""
        x, ends = accel.ones(1), threading.Event()

        def double():
            while not ends.is_set():
                x + x

        def end():
            ends.set()
            thread.join()
            print("joined")

        thread = threading.Thread(target=double, daemon=True)
        thread.start()
        time.sleep(0.1)
        """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "joined\n", "")
