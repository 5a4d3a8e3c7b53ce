# SPDX-License-Identifier: Apache-2.0
"""Follows a page in a folder of its own: writes its programs, runs its commands one after another, compares what they print."""

import glob
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

SECONDS = 240
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
TOOLS = {"c": "cc", "cpp": "c++", "python": "python3", "rust": "cargo", "julia": "julia", "go": "go"}


class Failed(Exception):
    """A command of a page ended otherwise than it should."""


class Session:
    """The folder and the variables as a reader has them who has installed the packages."""

    def __init__(self, root, build, folder, uses_rust=True):
        self.root, self.build, self.folder = pathlib.Path(root), pathlib.Path(build), pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        tools = self.folder.parent / "bin"
        tools.mkdir(exist_ok=True)
        if not (tools / "accel").exists():
            (tools / "accel").symlink_to(self.build / "src/cli/accel")
            julia = shutil.which("julia", path=f"{self.root}/build/deps/bin:{os.environ['PATH']}")
            if julia:  # interpreted, a program of a page takes a third of the time
                (tools / "julia").write_text(f'#!/bin/sh\nexec {julia} --startup-file=no --compile=min -O0 "$@"\n')
                (tools / "julia").chmod(0o755)
        names = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "ACCELERATE_", "ACCEL_", "LIBACCEL", "PYTHONUNBUFFERED")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        library = self.build / "src"
        self.environment = {
            **kept, "PATH": f"{tools}:{self.root}/build/deps/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
            "HOME": kept.get("HOME", str(self.folder)), "LC_ALL": "C.UTF-8", "ACCEL_LOG": "off", "ACCELERATE_USE_CPU": "1",
            # What the packages and an installation bring: headers, library, plugins, the packages of the languages.
            "PKG_CONFIG_PATH": str(self.build / "meson-uninstalled"), "LD_LIBRARY_PATH": str(library), "CPATH": str(self.root / "include"),
            "LIBACCEL": str(library),
            "ACCEL_PLUGIN_PATH": str(library / "comm/ucx"), "PYTHONPATH": str(self.build / "bindings/python"), "PYTHONDONTWRITEBYTECODE": "1",
            "JULIA_PROJECT": str(self.root / "bindings/julia"), "JULIA_DEPOT_PATH": str(self.build / "bindings/julia/depot"),
            "CARGO_NET_OFFLINE": "true", "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_DEBUG": "0", "GOFLAGS": "-buildvcs=false -mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local",
            "GOCACHE": str(self.build / "bindings/go/cache"), "GOPATH": str(self.build / "bindings/go/path"), "GOSUMDB": "off",
            "CGO_ENABLED": "1"}
        self.environment.pop("CARGO_TARGET_DIR", None)
        self.environment["ACCEL_SOURCE"] = str(self.root)
        if (self.build / "bindings/go/accel.pc").exists():
            self.environment["PKG_CONFIG_PATH"] = f"{self.build / 'bindings/go'}:{self.environment['PKG_CONFIG_PATH']}"
        if uses_rust:
            self.prepare_crates()

    def prepare_crates(self):
        """Cargo finds the crates of the bindings beside those that are kept, as it finds them in the registry."""
        kept, registry = self.root / "build/deps/crates", self.folder.parent / "crates"
        if not kept.is_dir():
            return
        if not registry.exists():
            registry.mkdir()
            for crate in kept.iterdir():
                if crate.is_dir():
                    (registry / crate.name).symlink_to(crate)
            for manifest in (self.root / "bindings/rust").glob("*/Cargo.toml"):
                crate = registry / re.search(r'^name = "(.*?)"', manifest.read_text(), re.MULTILINE)[1]
                shutil.copytree(manifest.parent, crate, symlinks=True, ignore=shutil.ignore_patterns("target"))
                (crate / ".cargo-checksum.json").write_text('{"files": {}, "package": null}')
                (crate / "Cargo.toml").write_text(self.without_workspace(manifest))
        (self.folder / ".cargo").mkdir(exist_ok=True)
        (self.folder / ".cargo/config.toml").write_text(
            f"[source.crates-io]\nreplace-with = 'kept'\n[source.kept]\ndirectory = '{registry}'\n")

    def without_workspace(self, manifest):
        """A manifest as it is published: with the values of the workspace, without paths."""
        text = manifest.read_text()
        shared = (self.root / "bindings/rust/Cargo.toml").read_text()
        values = dict(re.findall(r"^([\w-]+) = (.+)$", re.search(r"\[workspace\.package\]\n((?:.+\n)*)", shared)[1], re.MULTILINE)) \
            if "[workspace.package]" in shared else {}
        text = re.sub(r"^([\w-]+)(?:\.workspace = true| = \{ *workspace = true *\})$", lambda found: f"{found[1]} = {values[found[1]]}", text,
                      flags=re.MULTILINE)
        return re.sub(r', path = "[^"]*"|path = "\.\.[^"]*", ', "", text)

    def has(self, language):
        tool = TOOLS.get(language)
        if tool is None:
            return True
        if language == "python" and not glob.glob(str(self.build / "bindings/python/accel/_capi*.so")):
            return False
        if language == "julia" and not (self.build / "bindings/julia/depot").exists():
            return False
        if language == "go" and not (self.build / "bindings/go/accel.pc").exists():
            return False
        if language == "rust" and not (self.folder.parent / "crates/libaccel").is_dir():
            return False
        return shutil.which(tool, path=self.environment["PATH"]) is not None

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        manifest = path.parent.parent / "Cargo.toml"
        if manifest.is_file() and not (path.parent.parent / "target").exists():  # what is compiled once serves all pages
            (path.parent.parent / "target").symlink_to(self.crates_target())

    def crates_target(self):
        """Cargo takes the crates of a registry for unchanging, so each state of their sources has a folder."""
        sources = sorted((self.root / "bindings/rust").glob("*/**/*.rs"))
        state = hashlib.sha256("".join(f"{path} {path.stat().st_mtime_ns}\n" for path in sources if "target" not in path.parts).encode())
        folder = self.build / "bindings/rust/pages"
        kept = folder / state.hexdigest()[:16]
        for other in folder.glob("*"):
            if other != kept:
                shutil.rmtree(other)
        kept.mkdir(parents=True, exist_ok=True)
        return kept

    def patch(self, name, difference):
        """Changes a file by a block of lines with `+`, `-` and blank in front; the context says where."""
        lines = [line for line in difference.splitlines() if not line.startswith(("@@", "---", "+++"))]
        text = (self.folder / name).read_text()
        for part in re.split(r"\n(?=@@)|^@@.*$", difference, flags=re.MULTILINE):
            lines = [line for line in part.splitlines() if line and not line.startswith("@@")]
            if not lines:
                continue
            old = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
            new = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
            if text.count(old) != 1:
                raise Failed(f"{name} has {text.count(old)} places like this:\n{old}")
            text = text.replace(old, new)
        (self.folder / name).write_text(text)

    def run(self, commands):
        """The output of a block of commands; each must succeed."""
        process = subprocess.Popen(["bash", "-ec", commands], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            output = process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failed(f"took more than {SECONDS} s; it said: {process.communicate()[0]}") from None
        if process.returncode:
            raise Failed(f"ended with {process.returncode}: {output}")
        return output


def is_alike(printed, expected):
    """Whether lines are printed one after another; `...` stands for any text, and numbers with a point may differ by a little."""
    lines = iter(printed.splitlines())
    for wanted in expected.strip().splitlines():
        if wanted.strip() == "...":
            continue
        pattern = re.compile(re.sub(r"-?\\?\d+\\\.\d+(?:e[-+]?\d+)?", lambda _: r"(-?\d+\.\d+(?:e[-+]?\d+)?)", re.escape(wanted.strip())).replace(
            r"\.\.\.", ".*") + r"\s*$")
        for line in lines:
            found = pattern.match(line.strip())
            if found and all(abs(float(one) - float(other)) <= 0.05 * abs(float(other)) + 1e-3
                             for one, other in zip(found.groups(), NUMBER.findall(wanted))):
                break
        else:
            return False
    return True
