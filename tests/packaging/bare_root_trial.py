#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tries the packages as users get them: in bare Debian roots, as an ordinary user, from the first command to two ranks that print [0,1].

usage: bare_root_trial.py PACKAGES [--only NAME]... [--download]

PACKAGES is the folder that tools/package.sh made. Without --download LibTorch is there: its wheels in ~/.cache/libaccel, and for Python the
environment build/deps/torch_python. Prints one line for each trial with its seconds. Needs root rights, for the roots, and the network the
first time; exit status 77 without them.
"""

import argparse
import contextlib
import functools
import http.server
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from trial_steps import ACCIDENTS, STEPS

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENTER = ROOT / "packaging/root/enter.sh"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "libaccel"
USER = "1000:1000"
FETCHERS = "curl,ca-certificates,unzip"
# Of each trial the release of Debian and what its users have installed.
ROOTS = {
    "c": ("bookworm", f"gcc,libc6-dev,{FETCHERS}"),
    "cpp": ("bookworm", f"g++,cmake,make,pkg-config,{FETCHERS}"),
    "python": ("bookworm", "python3-venv,ca-certificates"),
    "rust": ("bookworm", f"gcc,libc6-dev,{FETCHERS}"),
    "julia": ("bullseye", f"julia,{FETCHERS}"),
    "debian": ("bookworm", f"gcc,libc6-dev,{FETCHERS}"),
}
SECONDS = {True: 300, False: 60}  # with LibTorch's download, and without


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    """The address of the folder for programs of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def make_root(name, folder):
    """Unpacks the bare root of a trial, which is made once and kept."""
    suite, packages = ROOTS[name]
    image = CACHE / "bare_roots" / f"{suite}-{packages.replace(',', '+')}.tar"
    if not image.exists():
        image.parent.mkdir(parents=True, exist_ok=True)
        part = image.with_suffix(".part.tar")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", suite, part], check=True)
        part.rename(image)
    subprocess.run(["tar", "-x", "-f", image, "-C", folder, "--exclude=./dev/*"], check=True)
    certificates = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copyfile(certificates, folder / "etc/ssl/certs/ca-certificates.crt")
    home = folder / "home/user"
    home.mkdir(parents=True)
    for program in ("c/hello.c", "cpp/hello.cpp", "python/hello.py", "rust/hello.rs", "julia/hello.jl"):
        shutil.copy(ROOT / "examples" / program, home)
    subprocess.run(["chown", "-R", USER, home], check=True)


class Trial:
    def __init__(self, name, root, arguments):
        self.name, self.root, self.arguments = name, root, arguments
        self.binds = [] if arguments.download else ["--bind", str(CACHE), "/wheels"]
        if name == "python" and not arguments.download:
            self.binds += ["--bind", str(next((ROOT / "build/deps/torch_python/lib").glob("python3*")) / "site-packages"), "/torch"]
        if name == "rust":
            toolchain = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
            self.binds += ["--bind", toolchain, "/opt/rust"]

    def run(self, script, *binds):
        environment = "cd ~; export PATH=/opt/rust/bin:$PATH CARGO_HTTP_CAINFO=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt\n"
        return subprocess.run([ENTER, self.root, *self.binds, *binds, "--user", USER, "--", "sh", "-euc", environment + script],
                              capture_output=True, text=True, check=False, env={**os.environ, "ROOT_HOME": "/home/user"})

    def steps(self, url, version):
        fetch = "" if self.arguments.download else " ".join(f"--wheel /wheels/{wheel.name}" for wheel in sorted(CACHE.glob("*.whl")))
        provide = "" if self.arguments.download else "echo /torch >$(ls -d environment/lib/python3*/site-packages)/torch.pth"
        return STEPS[self.name].format(url=url, version=version, fetch=fetch, provide_torch=provide)

    def accidents(self, version):
        """What goes wrong afterwards; yields a line for each that is not said as expected."""
        empty = self.root / "nothing"
        empty.mkdir(exist_ok=True)
        for what, (script, expected) in ACCIDENTS[self.name].items():
            binds = ["--bind", str(empty), "/dev/shm"] if what == "no /dev/shm" else []
            done = self.run(f"export LIBACCEL=$PWD/libaccel-{version}-linux-x86_64\n{script}", *binds)
            if expected not in done.stdout:
                yield f"{what}: expected `{expected}`, got {(done.stdout + done.stderr).strip()[-600:]}"
            else:
                print(f"  {what}: ok", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=STEPS, default=[])
    parser.add_argument("--download", action="store_true", help="LibTorch comes from the registry")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        print("skipped: root rights and the program mmdebstrap are needed")
        return 77
    version = next(arguments.packages.glob("libaccel_*_amd64.deb")).name.split("_")[1]
    failed = 0
    with served(arguments.packages) as url:
        for name in arguments.only or STEPS:
            with tempfile.TemporaryDirectory(dir=ROOT / "build", ignore_cleanup_errors=True) as folder:
                root = pathlib.Path(folder)
                root.chmod(0o755)
                make_root(name, root)
                trial = Trial(name, root, arguments)
                began = time.monotonic()
                done = trial.run(trial.steps(url, version))
                seconds = time.monotonic() - began
                problems = [] if "[0,1]" in done.stdout else [(done.stdout + done.stderr).strip()[-3000:]]
                if seconds > SECONDS[arguments.download]:
                    problems.append(f"it took {seconds:.0f} s, and {SECONDS[arguments.download]} s are allowed")
                print(f"{name}: {seconds:.1f} s {'ok' if not problems else 'FAILED'}", flush=True)
                if name in ACCIDENTS and not problems:
                    problems += trial.accidents(version)
                for problem in problems:
                    print(f"  {problem}", flush=True)
                failed += bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
