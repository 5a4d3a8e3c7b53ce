# SPDX-License-Identifier: Apache-2.0
"""`import accel` is light, and finds LibTorch where it should."""

import pathlib
import platform
import subprocess
import sys

import pytest

import accel


def run(code, **environment):
    import os

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr


def test_the_engine_waits_for_its_first_use():
    code = ("import sys, accel; assert 'accel._capi' not in sys.modules and not [m for m in sys.modules if m.startswith('numpy')];"
            "accel.DistributedType.MULTI_CPU; accel.GradientAccumulationPlugin(2); accel.notebook_launcher;"
            "assert 'accel._capi' not in sys.modules; accel.zeros(2); assert 'accel._capi' in sys.modules;"
            "assert not [m for m in sys.modules if m.startswith('numpy')]; print('light')")
    assert run(code)[1] == "light"


def test_every_name_is_there():
    for name in accel.__all__:
        assert getattr(accel, name) is not None
    assert set(accel.__all__) <= set(dir(accel))
    with pytest.raises(AttributeError, match="no_such_name"):
        accel.no_such_name  # noqa: B018


def test_libtorch_order(tmp_path):
    """An installed torch goes before ACCEL_LIBTORCH; without both the linker decides."""
    code = "from accel.engine import libtorch; print(libtorch.find())"
    (tmp_path / "site/torch/lib").mkdir(parents=True)
    (tmp_path / "site/torch/__init__.py").write_text("raise SystemExit('torch must not be imported')")
    (tmp_path / "site/torch/lib/libtorch_cpu.so").write_text("")
    (tmp_path / "own/lib").mkdir(parents=True)
    (tmp_path / "own/lib/libtorch_cpu.so").write_text("")
    import os

    path = os.environ.get("PYTHONPATH", "")
    own = str(tmp_path / "own")
    assert run(code, ACCEL_LIBTORCH=own)[1] == f"{own}/lib"
    assert run(code, ACCEL_LIBTORCH=own, PYTHONPATH=f"{path}:{tmp_path}/site")[1] == str(tmp_path / "site/torch/lib")
    status, _, errors = run(code, ACCEL_LIBTORCH=str(tmp_path))
    assert status != 0 and "expected the folder of a LibTorch" in errors


def test_a_broken_libtorch_is_an_import_error(tmp_path):
    (tmp_path / "lib").mkdir()
    for name in ("libc10.so", "libtorch_cpu.so"):
        (tmp_path / "lib" / name).write_text("not a library")
    status, _, errors = run("import accel; accel.zeros(2)", ACCEL_LIBTORCH=str(tmp_path))
    assert status != 0 and "libc10.so" in errors


def test_no_libtorch_names_the_version_and_the_command(tmp_path):
    """What the linker says of a library that is missing, and what a user should do."""
    code = ("import ctypes, accel; from accel.engine import libtorch\n"
            "def gone(*_): raise OSError('libtorch_cpu.so: cannot open shared object file')\n"
            "libtorch.find = lambda: None; ctypes.CDLL = gone; libtorch.library.find = lambda: 'libaccel.so'\n"
            "try: libtorch.load()\nexcept ImportError as error: print(error)")
    said = run(code)[1]
    assert "there is no LibTorch: `pip install torch==" in said and "ACCEL_LIBTORCH" in said and "\n" not in said


def test_the_library_is_found_in_each_kind_of_place(tmp_path):
    from accel.engine import library

    for place, file in ((tmp_path / "archive", "lib/libaccel.so.0.1"), (tmp_path / "debian", f"lib/{platform.machine()}-linux-gnu/libaccel.so.0.1"),
                        (tmp_path / "folder", "libaccel.so"), (tmp_path / "site", "accel/lib/libaccel.so.0.1")):
        (place / file).parent.mkdir(parents=True)
        (place / file).write_text("")
        assert library.in_place(place) == library.in_place(place / file) == place / file
    assert library.in_place(tmp_path) is None


def test_libaccel_names_the_library(tmp_path):
    code = "import accel; from accel.engine import library; accel.zeros(2); print(library.find())"
    used = run("import accel; accel.zeros(2); print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libaccel.so' in line))")[1]
    assert run(code, LIBACCEL=used)[1] == used
    assert pathlib.Path(run(code, LIBACCEL=str(pathlib.Path(used).parent))[1]).resolve() == pathlib.Path(used)
    status, _, errors = run(code, LIBACCEL=str(tmp_path))
    assert status != 0 and f"LIBACCEL={tmp_path}: expected an unpacked archive" in errors


def test_the_script_of_a_wheel_becomes_the_program(tmp_path):
    program = tmp_path / "accel"
    program.write_text("#!/bin/sh\necho \"became $0 with $*\"\n")
    program.chmod(0o755)
    code = "import sys; sys.argv[1:] = ['launch', '--help']; from accel.commands import program; program.main()"
    assert run(code, ACCEL_PROGRAM=str(program))[1] == f"became {program} with launch --help"
    status, _, errors = run(code, ACCEL_PROGRAM=str(tmp_path / "nothing"))
    assert status == 1 and errors == f"accel: ACCEL_PROGRAM={tmp_path}/nothing: expected the program accel\n"
