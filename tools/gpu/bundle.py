# SPDX-License-Identifier: Apache-2.0
"""A bundle as the script finds it: what bundle.json says, the torch that is here, and the environment of its programs."""

import gzip
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys
import zlib


class BundleError(Exception):
    """A one-line reason."""


def read(folder):
    """The facts of bundle.json."""
    file = pathlib.Path(folder, "bundle.json")
    try:
        facts = json.loads(file.read_text())
        return {name: facts[name] for name in ("torch", "python", "commit", "date", "libraries")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{folder} is not a bundle ({type(error).__name__}: {error}); expected a folder that tools/gpu/make_bundle.py made") from None


def short_commit(facts):
    """The first digits, and whether there were changes that are in no commit."""
    return re.sub(r"^([0-9a-f]{8})[0-9a-f]*", r"\1", facts["commit"])


def version_of(folder):
    """The version of the LibTorch in a folder."""
    for name in ("version.py", "build-version"):
        if (folder / name).is_file() and (found := re.search(r"\d+\.\d+\.\d+", (folder / name).read_text())):
            return found[0]
    raise BundleError(f"{folder} is not a LibTorch: neither version.py nor build-version says its version")


def libtorch(facts):
    """The folder of the LibTorch to load: $LIBTORCH, or that of this Python. Its version is the one of the bundle."""
    if given := os.environ.get("LIBTORCH"):
        folder = pathlib.Path(given).resolve()
    elif spec := importlib.util.find_spec("torch"):
        folder = pathlib.Path(spec.submodule_search_locations[0])
    else:
        raise BundleError(f"{sys.executable} has no torch; expected torch {facts['torch']}: give its Python by $PYTHON, or its folder by $LIBTORCH")
    if (version := version_of(folder)) != facts["torch"]:
        raise BundleError(f"the bundle was built for torch {facts['torch']}, and {folder} is torch {version}: "
                          f"make one by tools/gpu/make_bundle.py --libtorch {version}")
    python = ".".join(map(str, sys.version_info[:2]))
    if python != facts["python"]:
        raise BundleError(f"the bundle's package is for Python {facts['python']}, and {sys.executable} is Python {python}: "
                          "make the bundle with --python, or give the right one by $PYTHON")
    return folder


def missing_libraries(folder, facts):
    """The libraries of bundle.json that the folder does not have."""
    return [name for name in facts["libraries"] if not (folder / name).exists()]


def unpack(folder, scratch):
    """The programs that the bundle has packed, into scratch/bin."""
    (scratch / "bin").mkdir()
    for file in folder.glob("bin/*.gz"):
        target = scratch / "bin" / file.stem
        try:
            with gzip.open(file, "rb") as source, target.open("wb") as whole:
                shutil.copyfileobj(source, whole)
        except (OSError, EOFError, zlib.error) as error:
            raise BundleError(f"{file} cannot be unpacked into {scratch} ({error}); copy the bundle again, or set TMPDIR to a folder with more place") from None
        target.chmod(0o755)


def environment(folder, torch, device, scratch, out):
    """The variables of all programs of the bundle."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_", "ACCELERATE_"))}
    found = {
        **kept,
        # That of the machine comes last: in containers it may be what names the driver's libraries.
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(folder / "lib"), str(torch / "lib"), kept.get("LD_LIBRARY_PATH")))),
        "ACCEL_PLUGIN_PATH": str(folder / "lib/accel"),
        "ACCEL_PROGRAM": str(folder / "bin/accel"),
        "ACCELERATE_TORCH_DEVICE": device,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "python"), kept.get("PYTHONPATH")))),
        "BUNDLE": str(folder), "DEVICE": device, "SCRATCH": str(scratch), "OUT": str(out), "XDG_CACHE_HOME": str(scratch / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "4" if device == "cuda" else "1",
    }
    if device == "sim":
        plugin = str(folder / "lib/libsimulated_device.so")
        found |= {"ACCEL_DEVICE_PLUGINS": plugin, "SIMULATED_DEVICE_LIBRARY": plugin}
    return found
