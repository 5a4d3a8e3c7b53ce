# SPDX-License-Identifier: Apache-2.0
"""Names of Accelerate that have no counterpart here yet. They can be imported; using one raises NotImplementedError that says what is missing."""

from ..generated.names import INSTEAD, MISSING, MISSING_MODULES

_COMMAND = "the program `accel` asks its questions on the terminal itself (accel config)"
_PART_OF = {name: part for part, names in MISSING.items() for name in names.split()}


def text(name):
    """The message for a name; None where it is not known either."""
    if name in INSTEAD:
        return f"{name} is not in libaccel: {INSTEAD[name]}"
    return f"{name}: {_PART_OF[name]} is not in libaccel yet" if name in _PART_OF else None


class _Missing(type):
    """The class of what stands for missing names: these are classes, so that programs can name them in isinstance() and derive from them."""

    def __call__(cls, *_, **__):
        raise NotImplementedError(cls.what)

    def __getattr__(cls, name):
        raise AttributeError(cls.what)


def stand_in(name, module=None):
    """The stand-in that programs can import under a missing name, of one of MISSING_MODULES if given. None: the name is not known."""
    if module in MISSING_MODULES:
        what = f"{name}: {_COMMAND}" if name in MISSING_MODULES[module].split() else None
    else:
        what = text(name)
    return None if what is None else _Missing(name, (), {"what": what, "__module__": __package__, "__doc__": what})


def check_settings(**settings):
    """Refuses settings of what is missing, which may be there as None."""
    for name, value in settings.items():
        if value is not None:
            raise NotImplementedError(text(name))
