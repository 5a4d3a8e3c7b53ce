# SPDX-License-Identifier: Apache-2.0
"""Starts a bundle in an empty root, empty_root.py BUNDLE TORCH: a C library, the C++ runtime, the torch and its Python are there, and nothing else of this machine."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import shared_objects

CUDA_PART = re.compile(r"lib(torch|c10)_cuda\.so")
NOT_RUN = 77
PROGRAMS = ("/bin/sh", "/usr/bin/env")
ENTER = """
set -e
root=$1
shift
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  shift 2
done
shift
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
exec chroot "$root" /usr/bin/env -i PATH=/bin:/usr/bin HOME=/tmp "$@"
"""


def make(root):
    """The C library, the C++ runtime, a shell and env; folders of a system."""
    for folder in ("dev", "proc", "tmp", "etc", "bin", "usr/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    installed = shared_objects.installed_libraries()
    for name in sorted(shared_objects.SYSTEM & set(installed)):
        _copy(installed[name], root)
    for program in PROGRAMS:
        _copy(pathlib.Path(program), root)
    loader = pathlib.Path(_interpreter("/bin/sh"))
    _copy(loader, root)
    return loader


def _copy(path, root):
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path.resolve(), target)


def _interpreter(program):
    said = subprocess.run(["readelf", "--wide", "--program-headers", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    return said.partition("interpreter: ")[2].partition("]")[0]


def python_libraries(root):
    """The libraries of Python and its modules, in a folder that only Python is given. That folder."""
    folder = root / "python_libraries"
    folder.mkdir()
    files = [pathlib.Path(sys.executable).resolve(), *pathlib.Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("_ctypes.*.so")]
    own = pathlib.Path(sysconfig.get_config_var("LIBDIR"))
    carried = {file.name for file in own.glob("libpython*.so*")}
    for name, path in shared_objects.lacking([file for file in files if file.exists()], carried).items():
        shutil.copy2(path.resolve(), folder / name)
    return own


class Root:
    def __init__(self, root, binds):
        self.root, self.binds = root, binds

    def run(self, *command, **variables):
        """(status, what it said)"""
        binds = [word for pair in self.binds for word in map(str, pair)]
        set_variables = [f"{name}={value}" for name, value in variables.items()]
        done = subprocess.run(["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "sh", "-c", ENTER, "enter",
                               str(self.root), *binds, "--", *set_variables, *map(str, command)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        return done.returncode, done.stdout


def problems(bundle, torch, root, loader):
    """What does not start, a line each."""
    prefix = pathlib.Path(sys.base_prefix)
    entered = Root(root, [(bundle, "/bundle"), (torch.parent, "/packages"), (prefix, prefix)])
    libraries = "/bundle/lib:/packages/torch/lib"
    without_cuda = not (torch / "lib/libtorch_cuda.so").exists()
    for file in shared_objects.objects_of(bundle):
        _, said = entered.run(loader, "--list", f"/bundle/{file.relative_to(bundle)}", LD_LIBRARY_PATH=libraries)
        lines = [line.strip() for line in said.splitlines() if "not found" in line or "cannot open" in line]
        # A LibTorch for the CPU has no CUDA part, which only the plugins for CUDA need.
        yield from (f"{file.relative_to(bundle)}: {line}" for line in lines if not (without_cuda and CUDA_PART.search(line)))
    variables = {"LD_LIBRARY_PATH": libraries, "ACCEL_PLUGIN_PATH": "/bundle/lib/accel", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    own = python_libraries(root)
    python = {**variables, "LD_LIBRARY_PATH": f"{libraries}:/python_libraries:{own}", "PYTHONPATH": "/bundle/python", "PYTHONDONTWRITEBYTECODE": "1"}
    for expected, command, given in (
            ("torch", ["/bundle/bin/accel", "env"], variables), ("[0]", ["/bundle/bin/hello"], variables),
            ("[0,1]", ["/bundle/bin/accel", "launch", "--num-processes", "2", "--", "/bundle/bin/hello"], variables),
            ("cpu", [pathlib.Path(sys.executable).resolve(), "-c", "import accel; print(accel.PartialState().device)"], python)):
        status, said = entered.run(*command, **given)
        if status != 0 or expected not in said:
            yield f"`{' '.join(map(str, command))}` has status {status} and says: {said.strip()[-600:]}; expected {expected} in it"


def check(bundle, torch):
    """Prints what does not start. The exit status: 0, 1, or 77 where no root can be made."""
    if subprocess.run(["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "true"], capture_output=True, check=False).returncode:
        print("the bundle was not started in an empty root: this machine allows no mount namespace")
        return NOT_RUN
    with tempfile.TemporaryDirectory(prefix="accel-root-") as folder:
        root = pathlib.Path(folder)
        found = list(problems(bundle, torch, root, make(root)))
    for problem in found:
        print(f"make_bundle: {problem}", file=sys.stderr)
    if not found:
        print("all of it starts in an empty root")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(check(*map(pathlib.Path, sys.argv[1:])))
