# SPDX-License-Identifier: Apache-2.0
"""Loggers, sinks of the engine, progress bars and tracebacks."""

import json
import logging
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import accel
from accel.logging import add_sink, get_logger, log_engine, remove_sink


@pytest.fixture
def sink(accelerator):
    """Makes sinks, which end with the test."""
    made = []

    def make(**settings):
        made.append(add_sink(**settings))
        return made[-1]

    yield make
    for number in made:
        remove_sink(number)


def test_levels_from_the_environment(monkeypatch):
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "error")
    level = logging.root.level
    try:
        assert get_logger("levels").logger.level == logging.root.level == logging.ERROR
        assert get_logger("levels", "debug").logger.level == logging.DEBUG
    finally:
        logging.root.setLevel(level)


def test_sinks_get_what_loggers_log(sink, tmp_path):
    sink(path=tmp_path / "all_{rank}.jsonl", kind="jsonl", level="INFO")
    sink(path=tmp_path / "plain.txt", engine=False)
    logger = get_logger("tests.sinks", "DEBUG")
    logger.warning("first %d", 1)
    logging.getLogger("tests.sinks").debug("second")
    logging.getLogger("tests.sinks").info("third")
    log_engine("DEBUG", logging.getLogger("tests.sinks"))
    log_engine()
    lines = [json.loads(line) for line in (tmp_path / "all_0.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["logger"] == "tests.sinks"]
    assert [(line["rank"], line["message"].removeprefix("[RANK 0] ")) for line in mine] == [(0, "first 1"), (0, "third")]
    assert "second" in (tmp_path / "plain.txt").read_text()


WARNS = """
    import logging, os, threading
    logging.basicConfig(format="%(name)s %(levelname)s %(threadName)s %(message)s")
    from accel import nn, optim

    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
    kept = optim.lr_scheduler.StepLR(optimizer, 3).state_dict()

    def warn():
        optim.lr_scheduler.StepLR(optimizer, 2).load_state_dict(kept)
"""


def errors_of(program, **environment):
    """What a program that can warn() writes to stderr of its warnings."""
    whole = {name: value for name, value in os.environ.items() if name != "ACCEL_LOG"} | environment
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(WARNS) + textwrap.dedent(program)], capture_output=True, text=True, timeout=120, env=whole,
                          check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "step_size" in line]


def test_warnings_come_without_being_asked_for(tmp_path):
    (line,) = errors_of("warn()")
    assert line.startswith("accel WARNING MainThread ")
    (line,) = errors_of("warn()", ACCEL_LOG="warning")
    assert line.startswith("accel 2"), "the variable shows it, once"
    (line,) = errors_of("warn()", ACCEL_LOG=f"warning:{tmp_path / 'log.txt'}")
    assert line.startswith("accel WARNING ") and "step_size" in (tmp_path / "log.txt").read_text()
    assert errors_of("logging.getLogger('accel').setLevel('ERROR')\nwarn()") == []


def test_warnings_of_other_threads_and_of_children():
    """Each comes once, and a child that was forked has none of its parent's."""
    assert len(errors_of("""
        threads = [threading.Thread(target=warn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    """)) == 4


def test_messages_of_threads_of_the_engine():
    """They wait for no thread of Python, and are there when the log ends."""
    lines = errors_of("""
        import accel
        from accel.logging import log_engine

        class Rows:
            def __len__(self):
                return 4

            def __getitem__(self, index):
                raise KeyError("step_size")

        logging.getLogger("accel").setLevel("DEBUG")
        log_engine("debug")
        try:
            next(iter(accel.DataLoader(Rows(), num_workers=2)))
        except KeyError:
            log_engine(None)
    """)
    assert any(line.endswith(" ACCEL_ERROR_USER: KeyError: 'step_size'") for line in lines), lines
    assert any("accel_dataloader_next: " in line for line in lines), lines


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="counts threads by /proc")
def test_one_thread_delivers_what_comes_while_the_interpreter_is_busy():
    counted = errors_of("""
        import ctypes, re, sys, time
        from accel.logging import log_engine

        logging.getLogger("accel").setLevel("DEBUG")
        log_engine("debug")
        path = next(line.split()[-1] for line in open("/proc/self/maps") if "libaccel.so" in line)
        holding = ctypes.PyDLL(None)  # its calls keep the interpreter
        fails, thread = ctypes.CDLL(path).accel_wait_for_everyone, ctypes.c_void_p()
        text = ctypes.create_string_buffer(4096)

        def threads():
            status = holding.open(b"/proc/self/status", 0)
            holding.read(status, text, 4096)
            holding.close(status)
            return int(re.search(rb"Threads:\\s+(\\d+)", text.raw)[1])

        sys.setswitchinterval(1000)
        before = threads()
        for _ in range(20):
            holding.pthread_create(ctypes.byref(thread), None, fails, None)
            holding.pthread_detach(thread)
            holding.usleep(5000)
        holding.usleep(300000)
        sys.stderr.write(f"step_size {threads() - before}\\n")  # at once: messages are written beside it
        sys.setswitchinterval(0.005)
        time.sleep(0.1)
        log_engine(None)
        print("step_size end", file=sys.stderr)
    """)
    assert counted[-2:] == ["step_size 1", "step_size end"], counted


def test_warnings_at_the_end_of_the_interpreter():
    """The last one is not lost, and none comes after the end of Python's functions."""
    assert len(errors_of("""
        class Last:
            def __init__(self):
                self.warn = warn

            def __del__(self):
                self.warn()

        last = Last()
        warn()
    """)) == 1


def test_a_handler_of_warnings_that_raises_and_calls_the_engine():
    (line,) = errors_of("""
        import sys
        import accel

        class Calls(logging.Handler):
            def emit(self, record):
                raise KeyError(accel.ones(2).sum().item())

        sys.unraisablehook = lambda what: print("step_size", repr(what.exc_value), file=sys.stderr)
        logging.getLogger("accel").propagate = False
        logging.getLogger("accel").addHandler(Calls())
        warn()
    """)
    assert line == "step_size KeyError(2.0)"


def test_wrong_sinks(accelerator):
    with pytest.raises(ValueError, match="kind='xml': expected one of stderr, file, jsonl"):
        add_sink(kind="xml")


def test_the_first_argument_of_tqdm(accelerator):
    pytest.importorskip("tqdm")
    with pytest.raises(ValueError, match=r"main_process_only=True by name"):
        accel.tqdm(True, range(3))


def test_tqdm_is_off_on_other_ranks(ranks):
    pytest.importorskip("tqdm")
    assert ranks("""
        import accel
        accel.PartialState(cpu=True)
        print([accel.tqdm(range(2), main_process_only=only, disable=off).disable for only in (True, False) for off in (True, False)])
    """) == ["[True, False, True, False]\n", "[True, True, True, False]\n"]


def test_the_engines_bar(accelerator):
    lines = []
    bar = accel.ProgressBar(range(3), "train", show=lambda line, is_last: lines.append((line, is_last)), interval_ms=0)
    bar.set_postfix(loss=1.5)
    assert list(bar) == [0, 1, 2]
    report = bar.report()
    assert report["count"] == report["total"] == 3 and lines[-1][1] and "train" in lines[-1][0] and "loss" in lines[-1][0]
    with pytest.raises(RuntimeError):
        bar.update()
    with accel.ProgressBar(total=None, disable=True) as quiet:
        quiet.update(2)
        assert quiet.report()["total"] is None


def tracebacks(**environment):
    return subprocess.run([sys.executable, "-c", "import accel; hook = __import__('sys').excepthook; print(hook.__module__)"], capture_output=True, text=True,
                          timeout=60, env={**os.environ, **environment}, check=True).stdout.strip()


def test_tracebacks_of_rich(tmp_path):
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich/__init__.py").write_text("")
    (tmp_path / "rich/traceback.py").write_text("def hook(*_): pass\ndef install(show_locals):\n    assert not show_locals\n    import sys; sys.excepthook = hook\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    assert tracebacks(PYTHONPATH=path, ACCELERATE_ENABLE_RICH="1") == "rich.traceback"
    assert tracebacks(PYTHONPATH=path) == tracebacks(PYTHONPATH=path, ACCELERATE_ENABLE_RICH="no") == "sys"
    with pytest.raises(ModuleNotFoundError, match="ACCELERATE_ENABLE_RICH"):
        import accel.utils.rich  # noqa: F401
