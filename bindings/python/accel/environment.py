"""Environment variables and ports, as programs and their launchers share them."""

import contextlib
import functools
import logging
import os
import socket


def str_to_bool(value):
    """1 for y, yes, t, true, on, 1; 0 for n, no, f, false, off, 0."""
    text = value.lower()
    if text in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if text in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"{value!r} is no truth value: expected yes, no, true, false, on, off, 1 or 0")


def parse_flag_from_env(key, default=False):
    return str_to_bool(os.environ.get(key, str(default))) == 1


def parse_choice_from_env(key, default="no"):
    return os.environ.get(key, str(default))


def get_int_from_env(env_keys, default):
    """The first of the variables that is a number of 0 or more."""
    return next((int(os.environ[key]) for key in env_keys if int(os.environ.get(key, -1)) >= 0), default)


@contextlib.contextmanager
def _environment_kept():
    kept = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextlib.contextmanager
def patch_environment(**variables):
    """Environment variables inside, by their names in capitals."""
    with _environment_kept():
        os.environ.update({name.upper(): str(value) for name, value in variables.items()})
        yield


@contextlib.contextmanager
def clear_environment():
    """No environment variables inside."""
    with _environment_kept():
        os.environ.clear()
        yield


def purge_accelerate_environment(function):
    """A decorator: variables ACCELERATE_* are afterwards as they were before."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        kept = {name: value for name, value in os.environ.items() if name.startswith("ACCELERATE_")}
        try:
            return function(*args, **kwargs)
        finally:
            for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
                del os.environ[name]
            os.environ.update(kept)

    return run


def convert_dict_to_env_variables(variables):
    """Lines `KEY=VALUE`; what would not survive in a shell is left out with a message."""
    lines = []
    for name, value in variables.items():
        if any(letter in f"{name}{value}" for letter in ";\n<>\0 "):
            logging.getLogger(__name__).warning("the variable %r is left out: it has letters that a shell reads", name)
        else:
            lines.append(f"{name}={value}\n")
    return lines


def is_port_in_use(port=29500):
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", int(port))) == 0


def get_free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
