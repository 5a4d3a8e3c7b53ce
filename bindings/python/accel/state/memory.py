# SPDX-License-Identifier: Apache-2.0
"""Functions around memory: sizes that fit, and freeing it."""

import functools
import gc
import inspect

from .. import capi
from ..generated import errors
from .job import current, is_made, joined


_FULL = (" out of memory.", "error: out of memory", "MPS backend out of memory", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.", "DefaultCPUAllocator: can't allocate memory",
         "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed")


def should_reduce_batch_size(exception):
    """Whether an error says that the memory of a device or of the host is full."""
    if isinstance(exception, errors.OutOfMemoryError):
        return True
    return isinstance(exception, RuntimeError) and len(exception.args) == 1 and any(text in exception.args[0] for text in _FULL)


def find_executable_batch_size(function=None, starting_batch_size=128, reduce_batch_size_fn=None):
    """Calls a function with smaller and smaller batch sizes until one fits into memory; a decorator. The function's first
    argument is the size, and its result is the decorated function's. All ranks continue with the next size together."""
    if function is None:
        return functools.partial(find_executable_batch_size, starting_batch_size=starting_batch_size,
                                 reduce_batch_size_fn=reduce_batch_size_fn)
    start = [starting_batch_size]

    @functools.wraps(function)
    def search(*args, **kwargs):
        names = list(inspect.signature(function).parameters)
        if len(args) >= len(names):
            raise TypeError(f"batch size is given by the search: call {function.__name__}({', '.join(names[1:])})")
        result = []

        def attempt(batch_size):
            result[:] = [function(batch_size, *args, **kwargs)]

        def reduce(batch_size, next_batch_size, reason):
            return reduce_batch_size_fn() if reduce_batch_size_fn is not None else next_batch_size

        start[0] = capi.accel_find_executable_batch_size(joined(), (attempt, reduce), start[0])
        return result[0]

    return search


def clear_device_cache(garbage_collection=False):
    """Cached memory goes back; with `garbage_collection` that of unreachable objects too."""
    if garbage_collection:
        gc.collect()
    if is_made():
        capi.accel_empty_cache(current())
    else:
        capi.accel_device_empty_cache(capi.accel_device_default())


def release_memory(*objects):
    """Returns as many None as objects, for `a, b = release_memory(a, b)`; cached memory goes back."""
    clear_device_cache(garbage_collection=True)
    return [None] * len(objects)
