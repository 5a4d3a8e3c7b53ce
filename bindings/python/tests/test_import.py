"""`import accel` is light, and finds LibTorch where it should."""

import ast
import pathlib
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
    code = "from accel import libtorch; print(libtorch.find())"
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


def test_the_stub_has_every_name():
    text = (pathlib.Path(__file__).parents[1] / "accel/__init__.pyi").read_text()
    for name in [*accel.__all__, *accel._MODULES]:
        assert f"{name} as {name}" in text, name


def imports(file):
    """The modules of the package that a file imports, wherever in it; not what only type checkers read."""
    above = file.parent.name if file.parent.name != "accel" else ""
    nodes = [ast.parse(file.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.level:
            path = ".".join(filter(None, (above if node.level == 1 else "", node.module)))
            yield path
            yield from (f"{path}.{alias.name}".lstrip(".") for alias in node.names)


def test_no_modules_import_each_other():
    package = pathlib.Path(__file__).parents[1] / "accel"
    files = {".".join(file.relative_to(package).with_suffix("").parts): file for file in package.rglob("*.py") if file.stem != "__init__"}
    left = {name: set(imports(file)) & files.keys() for name, file in files.items()}
    while ready := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in ready:
            del left[name]
    assert not left, f"in circles, or above one: {sorted(left)}"
