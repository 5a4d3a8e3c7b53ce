# SPDX-License-Identifier: Apache-2.0
"""Scopes of the engine as context managers."""

import contextlib

from .. import capi
from ..generated import errors  # noqa: F401  (errors: the classes of what scopes end with)


class scope(contextlib.ContextDecorator):
    """Opens a scope with `begin(*arguments)`, and ends it on the way out. The exception of the body goes first."""

    def __init__(self, begin, *arguments):
        self._begin, self._arguments, self._open = begin, arguments, []

    def _recreate_cm(self):
        return scope(self._begin, *self._arguments)

    def open(self):
        """Begins the scope that __exit__() ends, and returns its handle."""
        self._open.append(self._begin(*self._arguments))
        return self._open[-1]

    def __enter__(self):
        self.open()

    def __exit__(self, kind, error, trace):
        opened = self._open.pop()
        if error is None:
            capi.accel_scope_end(opened)
            return
        with contextlib.suppress(capi.Error):  # what ended the body is the news
            capi.accel_scope_end(opened)


def noting(model, name, scope):
    """A scope of the engine, which the exchange of sparse gradients of a model of torch counts, too."""
    exchange = getattr(getattr(model, "__dict__", {}).get("forward"), "sparse", None)
    return scope if exchange is None else _counted(exchange, name, scope)


@contextlib.contextmanager
def _counted(counter, name, scope):
    setattr(counter, name, getattr(counter, name) + 1)
    try:
        with scope:
            yield
    finally:
        setattr(counter, name, getattr(counter, name) - 1)
