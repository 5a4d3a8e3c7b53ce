"""Which LibTorch the engine gets: that of an installed `torch`, of $ACCEL_LIBTORCH, or the one that libaccel was built with.

A process can have only one (docs/libtorch.md), so whatever is loaded already decides. The first folder that is there is used.
"""

import ctypes
import importlib
import importlib.util
import os
import pathlib
import sys

LIBRARIES = ("libc10.so", "libtorch_cpu.so")
# In a wheel: the plugins inside of the package, and the engine beside it, under its full version.
PLUGINS = pathlib.Path(__file__).parent / "plugins"
ENGINES = pathlib.Path(__file__).parent.parent / ".libaccel.mesonpy.libs"
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
    if PLUGINS.is_dir():
        os.environ.setdefault("ACCEL_PLUGIN_PATH", str(PLUGINS))
    if "torch" not in sys.modules:
        loaded_from = find()
        if loaded_from is not None:
            for library in LIBRARIES:
                ctypes.CDLL(str(loaded_from / library))
    try:
        for engine in ENGINES.glob("libaccel.so*"):
            ctypes.CDLL(str(engine))
        # Before the module begins, whose start would lose a Ctrl-C that came while the libraries were loaded.
        if extension := importlib.util.find_spec("._capi", __package__):
            ctypes.CDLL(extension.origin)
        importlib.import_module("._capi", __package__)
    except (ImportError, OSError) as error:
        if any(f"{library}: cannot open" in str(error) for library in LIBRARIES):
            raise ImportError("there is no LibTorch: install the package torch of the version that libaccel was built for, or set "
                              f"ACCEL_LIBTORCH to the folder of one ({error})") from error
        if "undefined symbol" not in str(error):
            raise ImportError(str(error)) from error
        source = "`import torch`" if "torch" in sys.modules else loaded_from
        raise ImportError(f"another version of LibTorch is loaded than the one libaccel was built for, probably by {source}; "
                          f"docs/libtorch.md says what to do ({error})") from error


def is_loaded():
    """Whether the engine is in this process already."""
    return f"{__package__}._capi" in sys.modules
