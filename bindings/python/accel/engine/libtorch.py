# SPDX-License-Identifier: Apache-2.0
"""Which LibTorch the engine gets: that of an installed `torch`, of $ACCEL_LIBTORCH, or the one that libaccel was built with.

A process can have only one (docs/libtorch.md), so whatever is loaded already decides. The first folder that is there is used.
"""

import ctypes
import importlib
import importlib.util
import os
import pathlib
import sys

from ..built_for import TORCH_VERSION
from . import library

LIBRARIES = ("libc10.so", "libtorch_cpu.so")
EXTENSION = f"{__package__.partition('.')[0]}._capi"
loaded_from = None  # the folder; None: what the linker found by itself


def installed_torch():
    """The libraries of the package `torch`, found without importing it."""
    spec = importlib.util.find_spec("torch")
    places = spec.submodule_search_locations if spec else None
    return pathlib.Path(places[0]) / "lib" if places else None


def named_by_environment():
    named = os.environ.get("ACCEL_LIBTORCH")
    if not named:
        return None
    for folder in (pathlib.Path(named) / "lib", pathlib.Path(named)):
        if (folder / LIBRARIES[-1]).exists():
            return folder
    raise ImportError(f"ACCEL_LIBTORCH={named}: expected the folder of a LibTorch, with lib/{LIBRARIES[-1]} in it")


def find():
    """The folder of the libraries, or None for the linker's own way: the folder that libaccel was built with."""
    for folder in (installed_torch, named_by_environment):
        place = folder()
        if place is not None and (place / LIBRARIES[-1]).exists():
            return place
    return None


def load():
    """Loads LibTorch and the engine, once; capi.py calls this before anything else."""
    global loaded_from
    if is_loaded():
        return
    if library.PLUGINS_BUILT_BY_PIP.is_dir():
        os.environ.setdefault("ACCEL_PLUGIN_PATH", str(library.PLUGINS_BUILT_BY_PIP))
    engine = library.find()
    if "torch" not in sys.modules:
        loaded_from = find()
        if loaded_from is not None:
            for part in LIBRARIES:
                ctypes.CDLL(str(loaded_from / part))
    try:
        if engine is not None:
            ctypes.CDLL(str(engine))
        # Before the module begins, whose start would lose a Ctrl-C that came while the libraries were loaded.
        if extension := importlib.util.find_spec(EXTENSION):
            ctypes.CDLL(extension.origin)
        importlib.import_module(EXTENSION)
    except (ImportError, OSError) as error:
        if any(f"{part}: cannot open" in str(error) for part in LIBRARIES):
            raise ImportError(f"there is no LibTorch: `pip install torch=={TORCH_VERSION}`, or set ACCEL_LIBTORCH to the folder of one of "
                              f"this version ({error})") from error
        if "undefined symbol" not in str(error):
            raise ImportError(str(error)) from error
        raise ImportError(f"{_other_version()} ({error})") from error


def _other_version():
    """The message when the process has a LibTorch that libaccel was not built for."""
    torch = sys.modules.get("torch")
    found = f"torch {torch.__version__} is loaded" if torch else f"the LibTorch of {loaded_from} is loaded"
    return (f"{found}, and libaccel was built for {TORCH_VERSION}: `pip install torch=={TORCH_VERSION}`, or build libaccel for yours "
            "(docs/libtorch.md)")


def check_torch():
    """For an imported torch whose libraries fit, but whose version does not: tensors may be laid out in another way."""
    if sys.modules["torch"].__version__.split("+")[0] != TORCH_VERSION:
        raise ImportError(_other_version())


def is_loaded():
    """Whether the engine is in this process already."""
    return EXTENSION in sys.modules
