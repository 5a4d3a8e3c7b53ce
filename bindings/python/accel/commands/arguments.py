# SPDX-License-Identifier: Apache-2.0
"""Parsers of commands, and such as take names of options with - and with _ and remember which of them were given."""

import argparse
import functools


class _Recording:
    """An action that adds its name to `nondefault` of what is parsed."""

    def __call__(self, parser, namespace, values, option_string=None):
        super().__call__(parser, namespace, values, option_string)
        if option_string is not None:
            namespace.nondefault = {*getattr(namespace, "nondefault", ()), self.dest}


class _Store(_Recording, argparse._StoreAction):
    pass


class _StoreTrue(_Recording, argparse._StoreTrueAction):
    pass


class CustomArgumentGroup(argparse._ArgumentGroup):
    """A group of a CustomArgumentParser."""


class CustomArgumentParser(argparse.ArgumentParser):
    """Options are added with their names with _."""

    @functools.wraps(argparse.ArgumentParser.__init__)
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name, action in ((None, _Store), ("store", _Store), ("store_true", _StoreTrue)):
            self.register("action", name, action)

    def add_argument_group(self, *args, **kwargs):
        group = CustomArgumentGroup(self, *args, **kwargs)
        self._action_groups.append(group)
        return group

    def _parse_optional(self, arg_string):
        name, equals, value = arg_string.partition("=")
        known = name.startswith("--") and name not in self._option_string_actions
        return super()._parse_optional("--" + name[2:].replace("-", "_") + equals + value if known else arg_string)


def parser_of(command, function, subparsers=None, description=None, kind=argparse.ArgumentParser, **settings):
    """The parser of a command. With `subparsers` it is one of a larger program, and names the function that runs the command."""
    if subparsers is None:
        return kind(prog=f"accel {command}", description=description, **settings)
    parser = subparsers.add_parser(command, description=description, **settings)
    parser.set_defaults(func=function)
    return parser
