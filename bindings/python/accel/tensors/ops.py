# SPDX-License-Identifier: Apache-2.0
"""Every operator of LibTorch, and the engine's own, under its name: `accel.ops.softmax(x, -1)`, with its schemas as
documentation.

Arguments are those of the schemas. Numbers and arrays stand for tensors where only a tensor fits. An operator with several
results gives a tuple, one without results None.
"""

import keyword
import sys

from .. import capi
from ..generated import errors  # noqa: F401  (errors: failures of operators have its classes)
from . import creation, schema
from .tensor_type import is_tensor

_call, _call_kw = capi.accel_op_call, capi.accel_op_call_kw
_PLAIN = {bool, int, float}  # a string may name a dtype or a device
_declared: dict = {}


def _unpack(results):
    return results[0] if len(results) == 1 else tuple(results) or None


def names():
    """The names of all operators."""
    if not _declared:
        for full in (full for namespace in schema.NAMESPACES for full in capi.accel_op_list(f"{namespace}::")):
            _declared.setdefault(full.partition("::")[2].partition(".")[0], None)
    return _declared.keys()


def declare(name):
    """The function of an operator. Its schemas are read when they are needed; until then it has no documentation."""
    if _declared.get(name) is None:
        _declared[name] = _function(name)
    return _declared[name]


def _function(name):
    chosen = {}  # (types of the positional arguments): handle

    def operator(*args, **kwargs):
        if not kwargs:
            handle = chosen.get(tuple(map(type, args)))
            if handle is not None:
                results = _call(handle, args)
                return results[0] if len(results) == 1 else tuple(results) or None
        return _resolve(operator, chosen, args, kwargs)

    operator.__name__ = operator.__qualname__ = name
    return operator


def find(name):
    """The operator of a name with its overloads and documentation, or None."""
    if name not in names():
        return None
    operator = declare(name)
    if not hasattr(operator, "overloads"):
        operator.overloads = schema.overloads(name)
        namespace = operator.overloads[0].text.partition("::")[0]
        owner = "LibTorch" if namespace == "aten" else "the engine"
        operator.__doc__ = "\n".join([f"{namespace}::{name} of {owner}:", "", *(f"    {overload.text}" for overload in operator.overloads)])
        operator.__signature__ = _signature(operator.overloads[0])
    return operator


def _signature(overload):
    from inspect import Parameter, Signature

    return Signature([Parameter(f"{parameter.name}_" if keyword.iskeyword(parameter.name) else parameter.name,
                                Parameter.KEYWORD_ONLY if parameter.keyword_only else Parameter.POSITIONAL_OR_KEYWORD,
                                annotation=parameter.type, default=Parameter.empty if parameter.default is None else parameter.default)
                      for parameter in sorted(overload.parameters, key=lambda parameter: parameter.keyword_only)],
                     __validate_parameters__=False)


def _resolve(operator, chosen, args, kwargs):
    """Has the engine find the overload, remembers it where the types alone decide, and calls it."""
    for attempt in (_as_given, _one_list, _tensors_for_numbers):
        changed = attempt(args, kwargs)
        if changed is None:
            continue
        try:
            handle = capi.accel_op_resolve(operator.__name__, *changed)
        except TypeError:
            continue
        if attempt is _as_given and not kwargs and all(type(arg) in _PLAIN or is_tensor(arg) for arg in args):
            chosen[tuple(map(type, args))] = handle
        args, kwargs = changed
        return _unpack(_call_kw(handle, args, kwargs) if kwargs else _call(handle, args))
    given = ", ".join([*(type(arg).__name__ for arg in args), *(f"{name}={type(arg).__name__}" for name, arg in kwargs.items())])
    known = "\n".join(f"  {overload.text}" for overload in find(operator.__name__).overloads[:12])
    raise TypeError(f"no overload of {operator.__name__} takes ({given}); there are:\n{known}")


def _as_given(args, kwargs):
    return args, kwargs


def _one_list(args, kwargs):
    """`x.view(2, 3)` means `x.view([2, 3])`."""
    if len(args) > 1 and all(type(arg) is int for arg in args[1:]):
        return (args[0], list(args[1:])), kwargs
    return (([*args],), kwargs) if args and all(type(arg) is int for arg in args) else None


def _tensors_for_numbers(args, kwargs):
    def change(value):
        if isinstance(value, (bool, int, float)) or not is_tensor(value) and hasattr(value, "__dlpack__"):
            return creation.as_tensor(value)
        return value

    like = next((arg for arg in args if is_tensor(arg)), None)
    changed = tuple(change(arg) for arg in args)
    if like is not None:  # a number takes the dtype of its tensor
        changed = tuple(new.to(like.dtype) if isinstance(old, (int, float)) else new for old, new in zip(args, changed))
    return changed, kwargs


def __getattr__(name):
    operator = None if name.startswith("__") else find(name)
    if operator is None:
        raise AttributeError(f"LibTorch has no operator aten::{name}")
    setattr(sys.modules[__name__], name, operator)
    return operator


def __dir__():
    return sorted(names())
