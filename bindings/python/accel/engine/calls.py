# SPDX-License-Identifier: Apache-2.0
"""How arguments and results of forward() pass through the engine, which knows tensors, numbers, texts, lists and dicts.

Other objects stay here while a call lasts, and a number goes in their place. Items of containers of other classes than list, tuple and dict, and
fields of dataclasses, go along, so that tensors in them are moved and converted as all others. Arguments that go by name
only are a dict at the end.
"""

import threading

from .. import capi
from ..tensors.tensor_type import is_tensor
from .values import again, contents_of, to_engine

_OBJECT, _CONTENTS, _NAMED = "__accel_object__", "__accel_contents__", "__accel_named__"


class _Objects(threading.local):
    """The objects of the calls that this thread is in."""

    def __init__(self):
        self.objects = []


_objects = _Objects()


def call(handle, inputs, named):
    """Calls a module of the engine."""
    objects = _objects.objects
    outside = len(objects)
    try:
        for value in inputs:
            if not is_tensor(value):
                inputs = [to_engine(value, _token_of) for value in inputs]
                break
        if named:
            inputs = list(inputs)
            inputs.append({_NAMED: to_engine(named, _token_of)})
        answer = capi.accel_module_call(handle, inputs)
        return _from_engine(answer) if objects else answer
    finally:
        if len(objects) > outside:
            del objects[outside:]


def run(forward, inputs):
    """Calls a forward() of Python for the engine."""
    if _objects.objects or inputs and type(inputs[-1]) is dict:
        inputs, named = _split(inputs)
        answer = forward(*inputs, **named)
    else:
        answer = forward(*inputs)
    return answer if is_tensor(answer) else to_engine(answer, _token_of)


def run_pre_hook(hook, module, inputs):
    """A hook before forward: arguments that go by name only stay as they are."""
    inputs, named = _split(inputs)
    answer = hook(module, tuple(inputs))
    if answer is None:
        return None
    answer = [to_engine(value, _token_of) for value in answer] if isinstance(answer, (list, tuple)) else [to_engine(answer, _token_of)]
    return [*answer, {_NAMED: to_engine(named, _token_of)}] if named else answer


def run_pre_hook_with_kwargs(hook, module, inputs):
    """Runs a hook that gets them too, and returns both."""
    inputs, named = _split(inputs)
    answer = hook(module, tuple(inputs), named)
    if answer is None:
        return None
    inputs, named = answer
    return [*(to_engine(value, _token_of) for value in inputs), *([{_NAMED: to_engine(named, _token_of)}] if named else [])]


def run_hook(hook, module, outputs):
    """A hook behind forward."""
    answer = hook(module, _from_engine(outputs[0]))
    return None if answer is None else [to_engine(answer, _token_of)]


def _split(inputs):
    """Arguments by place and by name."""
    named = {}
    if inputs and type(inputs[-1]) is dict and _NAMED in inputs[-1]:
        inputs, named = inputs[:-1], _from_engine(inputs[-1][_NAMED])
    return [_from_engine(value) for value in inputs], named


def _token_of(value):
    """The stand-in of an object."""
    _objects.objects.append(value)
    token = {_OBJECT: len(_objects.objects) - 1}
    contents = contents_of(value)
    if contents is not None:
        token[_CONTENTS] = to_engine(list(contents.values()) if isinstance(contents, dict) else contents, _token_of)
    return token


def _from_engine(value):
    """The tree with the objects in it again."""
    if is_tensor(value):
        return value
    if isinstance(value, list):
        return [_from_engine(item) for item in value]
    if isinstance(value, tuple):
        return tuple([_from_engine(item) for item in value])
    if not isinstance(value, dict):
        return value
    if _OBJECT not in value:
        return {key: _from_engine(item) for key, item in value.items()}
    found = _objects.objects[value[_OBJECT]]
    if _CONTENTS not in value:
        return found
    contents, items = contents_of(found), _from_engine(value[_CONTENTS])
    return again(found, dict(zip(contents, items)) if isinstance(contents, dict) else items)
