# SPDX-License-Identifier: Apache-2.0
"""Any object of Python as a value of the engine, for messages between ranks, checkpoints and batches.

None, truths, numbers of 64 bits, texts, bytes, tensors, and lists, tuples and dicts of them have kinds of their own there, which other
languages read. An object without one is pickled, and says so. Objects of an untrusted place are made of a few known classes only: what a
pickle names is called while it is read.
"""

import collections
import io
import os
import pickle
import sys

from .. import capi
from ..tensors.creation import as_tensor
from ..tensors.tensor_type import is_tensor
from .torch_types import is_torch_tensor, torch_module
from .values import again, contents_of, fits, has_plain_keys, to_engine

_PICKLE = "python/pickle"
_CLASS, _CONTENTS, _TORCH, _ENGINE = "__accel_class__", "__accel_contents__", "__accel_torch__", "__accel_tensor__"
_KNOWN = {
    "builtins": {"bytearray", "complex", "dict", "float", "frozenset", "int", "list", "range", "set", "slice", "str", "tuple", "bool", "bytes"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "uuid": {"UUID", "SafeUUID"},
    "numpy": {"dtype", "ndarray"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
    "accel.tensors.tensor": {"_rebuild"},
    "accel.tensors.dtypes": {"DType"},
    "accel.tensors.device": {"Device"},
}
_allowed = False
_seen = {}  # the classes of containers that this process itself put into batches


class TypedBytes(bytes):
    """Bytes that say who can read them."""

    type = None

    def __new__(cls, data, type):
        made = super().__new__(cls, data)
        made.type = type
        return made


def allow_pickle(allow=True):
    """Whether objects of any class are read that come from other hosts or from checkpoints. Reading a pickle can run any code; so only
    those of a few known classes are read by default, and all that comes from ranks of this host. ACCEL_ALLOW_PICKLE=1 does the same."""
    global _allowed
    _allowed = bool(allow)


def from_this_host(state):
    """Whether all that other ranks send comes from this host."""
    return capi.accel_num_processes(state) == capi.accel_local_num_processes(state)


def inside(thing):
    """Makes what copy and pickle take for a prepared object: the one inside, which belongs to no job."""
    return thing


def made_again(kind, args, kwargs, state):
    """The form in which copy and pickle take an object of the engine: one made with the same arguments, in its state."""
    made = kind(*args, **kwargs)
    made.load_state_dict(state)
    return made


def packed(value):
    """The value as the engine can hold it."""
    kind = type(value)
    if kind is list:
        return [packed(item) for item in value]
    if kind is tuple:
        return tuple([packed(item) for item in value])
    if kind is dict and has_plain_keys(value):
        return {key: packed(item) for key, item in value.items()}
    if _is_plain(value):
        return value
    if is_torch_tensor(value):
        return {_TORCH: to_engine(value.detach())}
    if hasattr(value, "__dlpack__") and kind.__module__ != "numpy":
        return as_tensor(value)  # pickles of other libraries' tensors need their code
    return TypedBytes(pickle.dumps(value), _PICKLE)


def packed_state(value):
    """The form for a file that other programs read: torch's tensors are plain there, and the engine's are marked where torch is imported.
    State dicts of torch, which are ordered, are dicts."""
    kind = type(value)
    if kind is list:
        return [packed_state(item) for item in value]
    if kind is tuple:
        return tuple([packed_state(item) for item in value])
    if (kind is dict or kind is collections.OrderedDict and any(map(is_torch_tensor, value.values()))) and has_plain_keys(value):
        return {key: packed_state(item) for key, item in value.items()}
    if is_torch_tensor(value):
        return to_engine(value.detach())
    return {_ENGINE: value} if is_tensor(value) and torch_module() is not None else packed(value)


def unpacked_state(value, trusted):
    """The object that was packed."""
    kind = type(value)
    if is_tensor(value):
        return _tensor_of_torch(value)
    if kind is list:
        return [unpacked_state(item, trusted) for item in value]
    if kind is tuple:
        return tuple([unpacked_state(item, trusted) for item in value])
    if kind is dict:
        return value[_ENGINE] if _ENGINE in value else {key: unpacked_state(item, trusted) for key, item in value.items()}
    return unpacked(value, trusted)


def packed_item(value):
    """The form for an item of a dataset or a batch, whose tensors are collated and moved whatever container they are in."""
    return to_engine(value, _container_or_pickle)


def _container_or_pickle(value):
    contents, kind = contents_of(value), type(value)
    if contents is None or isinstance(contents, dict) and not has_plain_keys(contents):
        return TypedBytes(pickle.dumps(value), _PICKLE)
    name = f"{kind.__module__}:{kind.__qualname__}"
    _seen[name] = kind
    return {_CONTENTS: packed_item(contents), _CLASS: name}  # a batch has the length of its first tensor


def unpacked(value, trusted):
    """The object that was packed. `trusted`: whether it comes from this host."""
    kind = type(value)
    if is_tensor(value):
        return value
    if kind is list:
        return [unpacked(item, trusted) for item in value]
    if kind is tuple:
        return tuple([unpacked(item, trusted) for item in value])
    if kind is dict:
        if _CLASS in value and _CONTENTS in value:
            return _container(value[_CLASS], unpacked(value[_CONTENTS], trusted), trusted)
        if _TORCH in value:
            return _tensor_of_torch(value[_TORCH])
        return {key: unpacked(item, trusted) for key, item in value.items()}
    return _Reader(value, trusted).load() if kind is TypedBytes and value.type == _PICKLE else value


def _tensor_of_torch(tensor):
    """A tensor that was one of torch; where torch is not loaded it stays the engine's."""
    if torch_module() is None:
        return tensor
    from .bridge import to_torch

    return to_torch(tensor)


def _is_plain(value):
    return type(value) in (int, str, float, bool, bytes, type(None)) and fits(value) or is_tensor(value)


def _trusts(trusted):
    return trusted or _allowed or os.environ.get("ACCEL_ALLOW_PICKLE") == "1"


def _refuse(name):
    raise pickle.UnpicklingError(f"an object of the class {name} comes from another host or a checkpoint, and reading it can run any "
                                 "code; if you trust where it comes from, call accel.allow_pickle()")


class _Reader(pickle.Unpickler):
    def __init__(self, data, trusted):
        super().__init__(io.BytesIO(data))
        self.trusted = _trusts(trusted)

    def find_class(self, module, name):
        if not self.trusted and name not in _KNOWN.get(module, ()):
            _refuse(f"{module}.{name}")
        return super().find_class(module, name)


def _container(name, contents, trusted):
    """A container of a class that is named; collated items name it once each."""
    name = name if isinstance(name, str) else name[0]
    kind = _seen.get(name)
    if kind is None:
        module, path = name.split(":")
        if not _trusts(trusted) and path not in _KNOWN.get(module, ()):
            _refuse(f"{module}.{path}")
        kind = sys.modules.get(module)
        for part in path.split("."):
            kind = getattr(kind, part, None)
        if not isinstance(kind, type):
            raise pickle.UnpicklingError(f"{module}.{path} is not there on this rank; import it")
    if issubclass(kind, tuple):
        return kind(*contents) if hasattr(kind, "_fields") else kind(contents)
    return again(kind() if issubclass(kind, (list, collections.abc.Mapping)) else kind.__new__(kind), contents)
