# SPDX-License-Identifier: Apache-2.0
"""Environment variables and ports, as programs and their launchers share them."""

import collections
import contextlib
import functools
import inspect
import logging
import os
import pathlib
import secrets
import socket


def str_to_bool(value, to_bool=False):
    """1 for y, yes, t, true, on, 1; 0 for n, no, f, false, off, 0; with `to_bool` True and False."""
    text = value.lower()
    for answer, words in ((True, ("y", "yes", "t", "true", "on", "1")), (False, ("n", "no", "f", "false", "off", "0"))):
        if text in words:
            return answer if to_bool else int(answer)
    raise ValueError(f"{value!r} is not a truth value: expected yes, no, true, false, on, off, 1 or 0")


def parse_flag_from_env(key, default=False):
    return str_to_bool(os.environ.get(key, str(default))) == 1


def parse_choice_from_env(key, default="no"):
    return os.environ.get(key, str(default))


def get_int_from_env(env_keys, default):
    """The first of the variables that is a number of 0 or more."""
    return next((int(os.environ[key]) for key in env_keys if int(os.environ.get(key, -1)) >= 0), default)


def env_var_path_add(env_var_name, path_to_add):
    """The paths of a variable with one more at the end; the variable stays as it is."""
    return os.pathsep.join([*filter(None, os.environ.get(env_var_name, "").split(os.pathsep)), str(path_to_add)])


def _restore(names, former):
    """Gives variables their former values; those that were not there go."""
    for name in names:
        if name in former:
            os.environ[name] = former[name]
        else:
            os.environ.pop(name, None)


@contextlib.contextmanager
def patch_environment(**variables):
    """Environment variables inside, by their names in capitals. Others that the body sets stay."""
    given = {name.upper(): str(value) for name, value in variables.items()}
    former = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        _restore(given, former)


@contextlib.contextmanager
def clear_environment():
    """No environment variables inside; afterwards all are as before."""
    former = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def purge_accelerate_environment(func_or_cls):
    """A decorator: variables ACCELERATE_* are afterwards as they were before. On a class it wraps each test method, also of its subclasses."""
    if isinstance(func_or_cls, type):
        return _purge_tests(func_or_cls)
    if inspect.iscoroutinefunction(func_or_cls):
        @functools.wraps(func_or_cls)
        async def run(*args, **kwargs):
            with _purged():
                return await func_or_cls(*args, **kwargs)
    else:
        @functools.wraps(func_or_cls)
        def run(*args, **kwargs):
            with _purged():
                return func_or_cls(*args, **kwargs)

    run._purges_environment = True
    return run


@contextlib.contextmanager
def _purged():
    former = dict(os.environ)
    try:
        yield
    finally:
        _restore([name for name in {*os.environ, *former} if name.startswith("ACCELERATE_")], former)


def _purge_tests(cls):
    _wrap_tests(cls)
    own = cls.__dict__.get("__init_subclass__")

    def initialize(below, **kwargs):
        own.__func__(below, **kwargs) if own is not None else super(cls, below).__init_subclass__(**kwargs)
        _wrap_tests(below)

    cls.__init_subclass__ = classmethod(initialize)
    return cls


def _wrap_tests(cls):
    for name in filter(lambda name: name.startswith("test"), dir(cls)):
        method = inspect.getattr_static(cls, name)
        kind = type(method) if isinstance(method, (staticmethod, classmethod)) else None
        function = method.__func__ if kind else method
        if inspect.isroutine(function) and not hasattr(function, "_purges_environment"):
            wrapped = purge_accelerate_environment(function)
            setattr(cls, name, kind(wrapped) if kind else wrapped)


def convert_dict_to_env_variables(current_env):
    """Lines `KEY=VALUE`; what would not survive in a shell is left out with a message."""
    lines = []
    for name, value in current_env.items():
        if not str(name) or not str(value) or any(letter in f"{name}{value}" for letter in ";\n<>\0 "):
            logging.getLogger("accel.utils.environment").warning("the variable %r is left out: it is empty, or has letters that a shell reads", name)
        else:
            lines.append(f"{name}={value}\n")
    return lines


def is_port_in_use(port=None):
    """Whether something listens there on this host; None: at the default port of a job."""
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", 29500 if port is None else int(port))) == 0


_claims = collections.deque(maxlen=64)  # of ports, each closed when it leaves


def _claim(port):
    """Claims a port as the engine's ClaimedPort does: whoever has the abstract Unix name has the port."""
    owner = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        owner.bind(f"\0libaccel port {port}")
    except OSError:
        owner.close()
        raise
    return owner


def get_free_port():
    """A port that is free. Nobody takes it meanwhile: it is below those that the system gives to programs that ask for any, and other
    launchers of this library pass it over until this process ends or has asked for 64 more."""
    try:
        first_ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first_ephemeral = 0
    first = 30000  # as for the program accel: jobs of Slurm have those before by their numbers
    own_ports = [first + secrets.randbelow(first_ephemeral - first) for _ in range(100)] if first_ephemeral > first else []
    for port in [*own_ports, 0]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            claim = _claim(port) if port else None
            probe.bind(("", port))
            if claim:
                _claims.append(claim)
            return probe.getsockname()[1]
    raise OSError("no free port was found")
