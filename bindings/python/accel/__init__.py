# SPDX-License-Identifier: Apache-2.0
"""Distributed training through libaccel.

The names are those of Hugging Face Accelerate and, for models, optimizers and data, of torch. `import accel` is light: the
engine is loaded with the first name that needs it. `accel.capi` is the low layer, the functions of accel.h under their names.
"""

import importlib
import os

from .compat import missing, names

# The stub is the table of names: "from .module import Name as Name", and "from . import module as module".
with open(os.path.join(os.path.dirname(__file__), "__init__.pyi"), encoding="utf-8") as _stub:
    _LINES = [line[len("from ."):].rstrip().partition(" import ") for line in _stub if line.startswith("from .")]
_HOMES = {name.rpartition(" ")[2]: module for module, _, names in _LINES for name in names.split(", ")}

names.add_modules()
if os.environ.get("ACCELERATE_ENABLE_RICH") and importlib.import_module(f"{__name__}.compat.availability").is_rich_available():
    importlib.import_module(f"{__name__}.utils.rich")

__version__ = "0.1.0"
__all__ = sorted(name for name, module in _HOMES.items() if module and name not in names.MODULES) + ["capi", "nn", "ops", "optim", "utils"]


def __getattr__(name):
    if name in names.MODULES or _HOMES.get(name) == "":
        value = importlib.import_module(f"{__name__}.{name}")
    elif name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        value = missing.stand_in(name)
        if value is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOMES})
