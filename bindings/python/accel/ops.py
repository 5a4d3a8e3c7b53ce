"""Every operator of LibTorch under its name: `accel.ops.softmax(x, -1)`, with its schemas as documentation.

Arguments are those of the schemas. Numbers and arrays stand for tensors where only a tensor fits. An operator with several
results gives a tuple, one without results None.
"""

import sys

from . import capi, errors, schema  # noqa: F401  (errors: failures of operators have its classes)
from .tensor_type import is_tensor

_call, _call_kw = capi.accel_op_call, capi.accel_op_call_kw
_cache = {}


def _unpack(results):
    return results[0] if len(results) == 1 else tuple(results) or None


class Operator:
    """An operator with all its overloads; the arguments choose one."""

    def __init__(self, name, found):
        self.__name__ = name
        self.overloads = found
        self.__doc__ = "\n".join([f"aten::{name} of LibTorch:", "", *(f"    {overload.text}" for overload in found)])
        self._chosen = {}  # (types of the positional arguments): handle

    def __repr__(self):
        return f"<operator {self.__name__}, {len(self.overloads)} overloads>"

    @property
    def __signature__(self):
        from inspect import Parameter, Signature

        kinds = {False: Parameter.POSITIONAL_OR_KEYWORD, True: Parameter.KEYWORD_ONLY}
        return Signature([Parameter(parameter.name if parameter.name.isidentifier() and parameter.name != "from" else "from_",
                                    kinds[parameter.keyword_only], annotation=parameter.type,
                                    default=Parameter.empty if parameter.default is None else parameter.default)
                          for parameter in self.overloads[0].parameters])

    def __call__(self, *args, **kwargs):
        if not kwargs:
            chosen = self._chosen.get(tuple(map(type, args)))
            if chosen is not None:
                results = _call(chosen, args)
                return results[0] if len(results) == 1 else tuple(results) or None
        return self._resolve(args, kwargs)

    def _resolve(self, args, kwargs):
        for attempt in (_as_given, _one_list, _tensors_for_numbers):
            changed = attempt(args, kwargs)
            if changed is None:
                continue
            for overload in self.overloads:
                if overload.accepts(*changed):
                    if attempt is _as_given and not kwargs and not any(isinstance(arg, (list, tuple, type(None))) for arg in args):
                        self._chosen[tuple(map(type, args))] = overload.handle
                    args, kwargs = changed
                    return _unpack(_call_kw(overload.handle, args, kwargs) if kwargs else _call(overload.handle, args))
        given = ", ".join([*(type(arg).__name__ for arg in args), *(f"{name}={type(arg).__name__}" for name, arg in kwargs.items())])
        known = "\n".join(f"  {overload.text}" for overload in self.overloads[:12])
        raise TypeError(f"no overload of {self.__name__} takes ({given}); there are:\n{known}")


def _as_given(args, kwargs):
    return args, kwargs


def _one_list(args, kwargs):
    """`x.view(2, 3)` means `x.view([2, 3])`."""
    if len(args) > 1 and all(type(arg) is int for arg in args[1:]):
        return (args[0], list(args[1:])), kwargs
    return (([*args],), kwargs) if args and all(type(arg) is int for arg in args) else None


def _tensors_for_numbers(args, kwargs):
    from .tensors import as_tensor

    def change(value):
        if isinstance(value, (bool, int, float)) or not is_tensor(value) and hasattr(value, "__dlpack__"):
            return as_tensor(value)
        return value

    like = next((arg for arg in args if is_tensor(arg)), None)
    changed = tuple(change(arg) for arg in args)
    if like is not None:  # a number takes the dtype of its tensor
        changed = tuple(new.to(like.dtype) if isinstance(old, (int, float)) else new for old, new in zip(args, changed))
    return changed, kwargs


def find(name):
    """The operator of a name, or None."""
    operator = _cache.get(name)
    if operator is None:
        found = schema.overloads(name)
        if not found:
            return None
        operator = _cache[name] = Operator(name, found)
    return operator


def __getattr__(name):
    operator = None if name.startswith("__") else find(name)
    if operator is None:
        raise AttributeError(f"LibTorch has no operator aten::{name}")
    setattr(sys.modules[__name__], name, operator)
    return operator


def __dir__():
    return sorted({full.removeprefix("aten::").partition(".")[0] for full in capi.accel_op_list("aten::")})
