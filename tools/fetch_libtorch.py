#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a LibTorch into build/deps: downloads its wheels and extracts what a build needs.

usage: fetch_libtorch.py [--libtorch VERSION] SOURCE_ROOT [PIP...]

Without a version it is that of tools/libtorch.txt, in build/deps/torch. The others, of tools/libtorch-VERSION.txt, live beside it, in
build/deps/libtorch-VERSION/torch.
PIP is the command that runs pip, for example `build/deps/python/bin/python -m pip`. Without one only the wheels are used that are
there, and the exit status is 3 if one is missing. The wheels stay in ${XDG_CACHE_HOME:-~/.cache}/libaccel, which all clones
share; each is checked against its hash before every extraction. It can be stopped at any moment and started again.
"""

import errno
import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import find_libtorch

# One wheel for every machine, whatever its Python: its libraries do not depend on the Python version.
PYTHON_OF_WHEEL = "3.11"
ATTEMPTS = 4
NO_WHEEL = 3  # exit status

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SPACE_SAID = re.compile(r"No space left|Disk quota exceeded|File too large", re.IGNORECASE)
# What pip says when there is no way to the index at all; anything else may get better.
NO_NETWORK_SAID = re.compile(r"NewConnectionError|ConnectTimeout|NameResolutionError|name resolution|ProxyError|"
                             r"Network is unreachable|Connection refused|Failed to establish")

# Of torch's libraries those that need CUDA or Python are left out: they would pull in gigabytes of CUDA libraries.
LEFT_OUT = "libtorch_(cuda|nvshmem|python|global_deps)|libc10_cuda|libcaffe2|libshm"
NEEDED = re.compile(
    rf"torch/include/.*|torch/version\.py|torch/lib/(?!{LEFT_OUT})lib[^/]*\.so[^/]*|torch\.libs/.*"
    r"|nvidia/cu13/lib/lib(cudart|cupti)\.so[^/]*|[^/]*\.dist-info/licenses/.*")


class FetchError(Exception):
    """A one-line reason."""


class NoWheelError(Exception):
    """A wheel is not there, and there is no pip to fetch it."""


def requirements(file):
    """{"torch==2.13.0": {hash, ...}, ...} of a requirements file."""
    text = re.sub(r"#.*", "", file.read_text()).replace("\\\n", " ")
    found = {}
    for line in filter(str.strip, text.splitlines()):
        found[line.split()[0]] = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def download_sizes(file):
    """{"torch": bytes, ...}: what a download takes at most, from the comments `# size NAME BYTES`."""
    return {name: int(size) for name, size in re.findall(r"^# size (\S+) (\d+)$", file.read_text(), re.MULTILINE)}


def megabytes(size):
    return f"{(size + 999_999) // 1_000_000} MB"


def say(text):
    print(f"LibTorch: {text}", flush=True)


def room_error(folder, needed, work):
    return FetchError(f"the disk is full: {work} needs {megabytes(needed)} in {folder}, and "
                      f"{megabytes(shutil.disk_usage(folder).free)} are free; make room there and start again")


def check_room(folder, needed, work):
    """Before something that takes long, instead of at its end."""
    if shutil.disk_usage(folder).free < needed:
        raise room_error(folder, needed, work)


def sha256(file):
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def empty_folder(folder):
    """Makes the folder anew: an interrupted run may have left one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def wheel_in(cache, requirement, hashes):
    """The wheel for this machine with a right hash, or None; a damaged one is removed."""
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*{platform.machine()}.whl"
    # One of an interrupted run may be complete: pip went on alone.
    for wheel in (cache / "partial").glob(pattern):
        os.replace(wheel, cache / wheel.name)
    for wheel in cache.glob(pattern):
        if sha256(wheel) in hashes:
            return wheel
        wheel.unlink()
    return None


class Progress:
    """How much of a download is there: on a terminal one line drawn again and again, elsewhere a line every ten seconds."""

    def __init__(self, folder, total):
        self.folder, self.total = folder, total
        self.terminal = sys.stdout.isatty()
        self.began = self.shown = time.monotonic()

    def show(self):
        now = time.monotonic()
        if now - self.shown < (0.5 if self.terminal else 10):
            return
        self.shown = now
        sizes = []
        for folder, _, files in os.walk(self.folder):
            for file in files:
                try:
                    sizes.append(os.stat(os.path.join(folder, file)).st_size)
                except FileNotFoundError:
                    pass
        total = f" of {megabytes(self.total)}" if self.total else ""
        line = f"LibTorch: {megabytes(max(sizes, default=0))}{total}, {now - self.began:.0f} s"
        print(f"\r{line}\033[K" if self.terminal else line, end="" if self.terminal else "\n", flush=True)

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", flush=True)


def run_pip(command, folder, lock, progress):
    """Runs pip; its temporary files are in the folder too. Returns (exit status, what it said)."""
    with tempfile.TemporaryFile("w+", dir=folder, errors="replace") as said:
        # pip holds the lock as well: it may live longer than this process.
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=[lock.fileno()],
                               env=dict(os.environ, TMPDIR=str(folder)))
        try:
            while True:
                try:
                    status = pip.wait(timeout=0.25)
                    break
                except subprocess.TimeoutExpired:
                    progress.show()
        except BaseException:
            pip.terminate()
            pip.wait()
            raise
        finally:
            progress.end()
        said.seek(0)
        return status, said.read()


def download(pip, cache, requirement, pins, lock):
    """Downloads one wheel into the cache: complete, checked, or not at all."""
    hashes, size = requirements(pins)[requirement], download_sizes(pins).get(requirement.split("==")[0], 0)
    say(f"downloading {requirement}" + (f", {megabytes(size)}" if size else ""))
    tags = ("manylinux_2_28", "manylinux_2_25", "manylinux_2_17", "manylinux2014")
    platforms = [f"--platform={tag}_{platform.machine()}" for tag in tags]
    python = ["--implementation=cp", f"--python-version={PYTHON_OF_WHEEL}",
              f"--abi=cp{PYTHON_OF_WHEEL.replace('.', '')}", "--abi=none"]
    work = f"the download of {requirement}"
    needed = 2 * size  # pip copies what it has downloaded
    check_room(cache, needed, work)
    folder = cache / "partial"
    try:
        for attempt in range(1, ATTEMPTS + 1):
            empty_folder(folder)
            # The first attempt finds out soon that there is no network.
            network = ["--no-cache-dir", "--disable-pip-version-check", f"--retries={1 if attempt == 1 else 5}"]
            if "PIP_DEFAULT_TIMEOUT" not in os.environ:
                network.append(f"--timeout={30 if attempt == 1 else 60}")
            pinned = folder / "requirement.txt"
            pinned.write_text(requirement + "".join(f" --hash=sha256:{value}" for value in sorted(hashes)) + "\n")
            command = [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", *python, *platforms, *network,
                       "--require-hashes", f"--dest={folder}", "-r", str(pinned)]
            status, said = run_pip(command, folder, lock, Progress(folder, size))
            if status == 0:
                break
            if NO_SPACE_SAID.search(said):
                shutil.rmtree(folder, ignore_errors=True)
                raise room_error(cache, needed, work)
            if NO_NETWORK_SAID.search(said):
                raise FetchError(f"{requirement} is not in {cache}, and the network is not reachable; connect it, or set "
                                 "$LIBTORCH to an installed LibTorch")
            if attempt == ATTEMPTS:
                reason = (said.strip().splitlines() or ["pip gives no reason"])[-1]
                raise FetchError(f"{requirement} cannot be downloaded: {reason}")
            time.sleep(2 * attempt)
        found = wheel_in(cache, requirement, hashes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None:
        raise FetchError(f"the download of {requirement} is not one of the files that tools/{pins.name} allows")
    return found


def extract(wheels, destination):
    """Extracts the needed files beside their destination and moves them there once they are complete."""
    staging = empty_folder(destination / "partial")
    needed = 0
    try:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                needed += sum(entry.file_size for entry in archive.infolist() if NEEDED.fullmatch(entry.filename))
        check_room(destination, needed, "the extraction")
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if NEEDED.fullmatch(name) and not name.endswith("/"):
                        archive.extract(name, staging)
        # torch comes last: its folder says that the whole is there.
        for part in sorted(staging.iterdir(), key=lambda entry: entry.name == "torch"):
            target = destination / part.name
            if target.is_dir():
                shutil.rmtree(target)
            part.rename(target)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        shutil.rmtree(staging, ignore_errors=True)
        raise room_error(destination, needed, "the extraction") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return pathlib.Path(base if os.path.isabs(base) else pathlib.Path.home() / ".cache", "libaccel")
    except RuntimeError as error:
        raise FetchError("there is no home folder to keep the download in; set XDG_CACHE_HOME to a folder") from error


def fetch(root, version, pip):
    pins, destination = find_libtorch.pinned(root, version)
    destination.mkdir(parents=True, exist_ok=True)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"another set-up is downloading to {cache}; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        wheels = []
        for requirement, hashes in requirements(pins).items():
            wheel = wheel_in(cache, requirement, hashes)
            if wheel is None:
                if not pip:
                    raise NoWheelError
                wheel = download(pip, cache, requirement, pins, lock)
            wheels.append(wheel)
        shutil.rmtree(cache / "partial", ignore_errors=True)
    extract(wheels, destination)
    # Written beside and moved: half of it, on a full disk, would never match.
    marker = destination / "libtorch.txt"
    marker.with_suffix(".new").write_bytes(pins.read_bytes())
    os.replace(marker.with_suffix(".new"), marker)


def main():
    arguments = sys.argv[1:]
    version = ""
    if arguments[:1] == ["--libtorch"]:
        version, arguments = "".join(arguments[1:2]), arguments[2:]
    if not arguments:
        print("usage: fetch_libtorch.py [--libtorch VERSION] SOURCE_ROOT [PIP...]", file=sys.stderr)
        return 2
    os.umask(0o022)  # the cache serves later runs, whatever the umask of this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, which ends pip and cleans up
    try:
        fetch(pathlib.Path(arguments[0]), version, arguments[1:])
    except NoWheelError:
        return NO_WHEEL
    except KeyboardInterrupt:
        print("LibTorch: stopped; what is complete is kept, start again to continue", file=sys.stderr)
        return 130
    except (FetchError, ValueError, OSError, zipfile.BadZipFile) as error:
        print(f"LibTorch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
