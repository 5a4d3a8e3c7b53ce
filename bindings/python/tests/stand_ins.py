# SPDX-License-Identifier: Apache-2.0
"""Modules that stand for packages which are not installed, and record what is called."""

import sys
import types


class Recorder:
    """Whatever it is asked for is there; every call is in `calls`: (dotted name, arguments, keywords)."""

    def __init__(self, name, calls, answers):
        self._name, self._calls, self._answers = name, calls, answers

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self._name}.{name}"
        return self._answers[path] if path in self._answers else Recorder(path, self._calls, self._answers)

    def __call__(self, *args, **kwargs):
        self._calls.append((self._name, args, kwargs))
        answer = self._answers.get(f"{self._name}()")
        return Recorder(f"{self._name}()", self._calls, self._answers) if answer is None else answer(*args, **kwargs)

    def __setitem__(self, key, value):
        self._calls.append((f"{self._name}[]", (key, value), {}))

    def __setattr__(self, name, value):
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self._calls.append((f"{self._name}.{name}=", (value,), {}))

    def __repr__(self):
        return f"<{self._name}>"


def install(monkeypatch, name, **answers):
    """A package and its modules `name.…` as `answers` has them; `answers`: attributes by dotted path with "__" for the dots, a path that ends
    in "_call" gives what calls return. The list of calls."""
    calls, known = [], {}
    for path, answer in answers.items():
        path = path.replace("__", ".")
        known[f"{name}.{path.removesuffix('_call')}" + ("()" if path.endswith("_call") else "")] = answer
    recorder = Recorder(name, calls, known)

    def module(full):
        made = types.ModuleType(full)
        made.__getattr__ = lambda entry: getattr(recorder, entry)
        made.__path__ = []
        monkeypatch.setitem(sys.modules, full, made)
        return made

    module(name).__spec__ = types.SimpleNamespace(name=name)
    return calls
