# SPDX-License-Identifier: Apache-2.0
"""The names of Accelerate, and the module here that each is in. They are resolved when they are asked for.

Accelerate spreads its names over many modules; which name is in which of them has no meaning here. So modules of Accelerate that
are not files here, and files here that lack some of its names, resolve all of the names in one way.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

from ..generated import names
from . import availability, missing

_PACKAGE = __name__.partition(".")[0]
TORCH_NAMES = frozenset(" ".join(names.TORCH_HOMES.values()).split())
HOMES = {**dict.fromkeys(availability.__all__, "compat.availability"),
         **{name: module for module, text in (names.HOMES | names.TORCH_HOMES).items() for name in text.split()}}
MODULES = {**dict.fromkeys(names.MISSING_MODULES, ""), **names.MODULES}


def find(name):
    """The object that a name of Accelerate has here; for a missing name, an object that says so when it is used. None: it is no such name."""
    if name in HOMES:
        return getattr(importlib.import_module(f"{_PACKAGE}.{HOMES[name]}"), name)
    return missing.stand_in(name)


def resolver(module, main=None):
    """The __getattr__() of a module; of a folder that has the names of one of its modules, its `main` one, before all others."""
    path = module.partition(".")[2]

    def find_in_module(name):
        value = None
        if main is not None and name != main and importlib.util.find_spec(f"{module}.{name}") is None:
            value = getattr(importlib.import_module(f"{module}.{main}"), name, None)
        if value is None and f"{path}.{name}" in MODULES and name not in HOMES:
            value = importlib.import_module(f"{module}.{name}")
        elif value is None and path in names.MISSING_MODULES:
            value = missing.stand_in(name, path)
        elif value is None and HOMES.get(name) != path:  # it has not got its own name
            value = find(name)
        if value is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        setattr(sys.modules[module], name, value)
        return value

    return find_in_module


class _Finder:
    """Imports MODULES as if they were files."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, path = fullname.partition(".")
        return ModuleSpec(fullname, self, is_package=True) if package == _PACKAGE and path in MODULES else None

    def create_module(self, spec):
        """The usual one."""

    def exec_module(self, module):
        name = module.__name__
        home = MODULES[name.partition(".")[2]]
        if home:
            module = sys.modules[name] = importlib.import_module(f"{_PACKAGE}.{home}")
        vars(module).setdefault("__getattr__", resolver(module.__name__))


def add_modules():
    """Makes `import accel.utils.operations` find what is no file."""
    sys.meta_path.append(_Finder())
