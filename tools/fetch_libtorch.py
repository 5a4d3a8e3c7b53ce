#!/usr/bin/env python3
"""Puts LibTorch into build/deps: downloads the wheels of tools/libtorch.txt and extracts what a build needs.

usage: fetch_libtorch.py SOURCE_ROOT PIP...

PIP is the command that runs pip, for example `build/deps/python/bin/python -m pip`. The wheels stay in
${XDG_CACHE_HOME:-~/.cache}/libaccel, which all clones share; each is checked against its hash before every extraction.
"""

import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile

# One wheel for every machine, whatever its Python: its libraries do not depend on the Python version.
PYTHON_OF_WHEEL = "3.11"
ATTEMPTS = 4

# Of torch's libraries those that need CUDA or Python are left out: they would pull in gigabytes of CUDA libraries.
LEFT_OUT = "libtorch_(cuda|nvshmem|python|global_deps)|libc10_cuda|libcaffe2|libshm"
NEEDED = re.compile(
    rf"torch/include/.*|torch/version\.py|torch/lib/(?!{LEFT_OUT})lib[^/]*\.so[^/]*|torch\.libs/.*"
    r"|nvidia/cu13/lib/lib(cudart|cupti)\.so[^/]*|[^/]*\.dist-info/licenses/.*")


class FetchError(Exception):
    """A one-line reason."""


def requirements(file):
    """{"torch==2.13.0": {hash, ...}, ...} of a requirements file."""
    text = re.sub(r"#.*", "", file.read_text()).replace("\\\n", " ")
    found = {}
    for line in filter(str.strip, text.splitlines()):
        found[line.split()[0]] = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


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
    for wheel in cache.glob(f"{name.replace('-', '_')}-{version}-*{platform.machine()}.whl"):
        if sha256(wheel) in hashes:
            return wheel
        wheel.unlink()
    return None


def download(pip, cache, requirement, hashes):
    """Downloads one wheel into the cache: complete, checked, or not at all."""
    tags = ("manylinux_2_28", "manylinux_2_25", "manylinux_2_17", "manylinux2014")
    platforms = [f"--platform={tag}_{platform.machine()}" for tag in tags]
    python = ["--implementation=cp", f"--python-version={PYTHON_OF_WHEEL}",
              f"--abi=cp{PYTHON_OF_WHEEL.replace('.', '')}", "--abi=none"]
    network = ["--retries=5", "--timeout=60", "--no-cache-dir", "--disable-pip-version-check"]
    folder = empty_folder(cache / "partial")
    try:
        pinned = folder / "requirement.txt"
        pinned.write_text(requirement + "".join(f" --hash=sha256:{value}" for value in sorted(hashes)) + "\n")
        command = [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", *python, *platforms, *network,
                   "--require-hashes", f"--dest={folder}", "-r", str(pinned)]
        for attempt in range(1, ATTEMPTS + 1):
            result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            if result.returncode == 0:
                break
            if attempt == ATTEMPTS:
                reason = (result.stderr.strip().splitlines() or ["pip gives no reason"])[-1]
                raise FetchError(f"{requirement} cannot be downloaded: {reason}")
            time.sleep(2 * attempt)
        for wheel in folder.glob("*.whl"):
            os.replace(wheel, cache / wheel.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = wheel_in(cache, requirement, hashes)
    if found is None:
        raise FetchError(f"the download of {requirement} is not one of the files that tools/libtorch.txt allows")
    return found


def extract(wheels, destination):
    """Extracts the needed files beside their destination and moves them there once they are complete."""
    staging = empty_folder(destination / "partial")
    try:
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
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def main():
    if len(sys.argv) < 3:
        print("usage: fetch_libtorch.py SOURCE_ROOT PIP...", file=sys.stderr)
        return 2
    root, pip = pathlib.Path(sys.argv[1]), sys.argv[2:]
    wanted = requirements(root / "tools" / "libtorch.txt")
    destination = root / "build" / "deps"
    destination.mkdir(parents=True, exist_ok=True)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "libaccel")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two clones must not download the same file at a time
            wheels = []
            for requirement, hashes in wanted.items():
                wheel = wheel_in(cache, requirement, hashes)
                if wheel is None:
                    print(f"downloading {requirement}", flush=True)
                    wheel = download(pip, cache, requirement, hashes)
                wheels.append(wheel)
        extract(wheels, destination)
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        print(f"LibTorch: {error}", file=sys.stderr)
        return 1
    (destination / "libtorch.txt").write_bytes((root / "tools" / "libtorch.txt").read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
