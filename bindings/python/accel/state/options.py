# SPDX-License-Identifier: Apache-2.0
"""Settings for the engine's structs of options: where values come from that are not given, and how a struct is filled."""

import copy
import os

from ..generated.choices import CHOICES, FIELDS
from .environment import clear_environment, str_to_bool

_READ = {"flag": lambda text: str_to_bool(text, to_bool=True), "integer": int, "integer_or_text": lambda text: int(text) if text.isdigit() else text,
         "number": float, "number_or_auto": lambda text: text if text == "auto" else float(text)}


class KwargsHandler:
    """A group of settings."""

    def to_dict(self):
        return copy.deepcopy(self.__dict__)

    def to_kwargs(self):
        """Only what differs from the defaults, those without variables of the environment."""
        with clear_environment():
            default = type(self)().to_dict()
        return {name: value for name, value in self.to_dict().items() if default[name] != value}

    def to_engine(self):
        return engine_options(self)


def read_variables(settings, *names, **defaults):
    """Gives fields that are None the values of their variables, else the defaults: those given here, or those of the table."""
    for name in [*names, *defaults]:
        variable, kind, default = settings._variables[name]
        text = os.environ.get(variable, defaults.get(name, default))
        if getattr(settings, name) is None and text is not None:
            setattr(settings, name, _READ.get(kind, str)(text))


def number_of(kind, name):
    """The number of a setting that is one of some texts, in any case, or its digits, as the engine takes them."""
    if not isinstance(name, str):
        return name
    texts = CHOICES[kind]
    number = int(name) if name.isascii() and name.isdigit() else texts.get(name.lower())
    if number not in texts.values():
        raise ValueError(f"{kind}={name!r}: expected one of {', '.join(map(repr, texts))}")
    return number


def fill(options, settings, **renamed):
    """An options struct of the engine with the fields that are given; the others stay unset."""
    for name, value in settings.items():
        name = renamed.get(name, name)
        if value is not None and name is not None:
            if not hasattr(type(options), name):
                raise TypeError(f"there is no setting {name!r}")
            kind = FIELDS.get((type(options).__name__, name))
            setattr(options, name, number_of(kind, value) if kind else int(value) if isinstance(value, bool) else value)
    return options


def engine_options(settings, **changed):
    """The engine's struct of a dataclass of settings, filled with the fields of the same names, some with other values."""
    from .. import capi

    struct = getattr(capi, settings._struct)
    given = {name: value for name, value in vars(settings).items() if hasattr(struct, name)}
    return fill(struct(), {**given, **changed})
