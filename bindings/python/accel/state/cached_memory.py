"""Memory of devices that is cached for later tensors."""

import gc

from .. import capi
from .job import current, is_made


def clear_device_cache(garbage_collection=False):
    """Cached memory goes back; with `garbage_collection` that of unreachable objects too."""
    if garbage_collection:
        gc.collect()
    if is_made():
        capi.accel_empty_cache(current())
    else:
        capi.accel_device_empty_cache(capi.accel_device_default())


def release_memory(*objects):
    """As many None as objects, for `a, b = release_memory(a, b)`; cached memory goes back."""
    clear_device_cache(garbage_collection=True)
    return [None] * len(objects)
