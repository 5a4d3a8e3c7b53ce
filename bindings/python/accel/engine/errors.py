"""Exceptions: one class for each group of statuses, below them one for each status that programs tell apart.

All have `status`, `code` (its name), `function` and `rank`. What a callback raises comes out as it is.
"""

from .. import capi
from ..capi import Error


class ArgumentError(Error, ValueError):
    """Correct the call."""


class HandleError(ArgumentError):
    """An object of another kind, or one that was closed."""


class KindError(ArgumentError, TypeError):
    """Another kind of value or dtype was expected."""


class ShapeError(ArgumentError):
    """Another shape or number of elements was expected."""


class NotFoundError(ArgumentError, LookupError):
    """A name, index or file that does not exist."""


class AlreadyExistsError(ArgumentError):
    """A name that is taken."""


class StateError(Error, RuntimeError):
    """The object cannot do this now, or here."""


class UnsupportedError(StateError, NotImplementedError):
    """This build, machine or version cannot do it."""


class OutOfMemoryError(StateError, MemoryError):
    """Of the host or the device."""


class FileError(Error):
    """A file could not be read or written, or is not what it should be."""


class GroupError(Error, RuntimeError):
    """The process group: make a new state, except after a mismatch."""


class CollectiveTimeoutError(GroupError):
    """The other ranks did not answer in time."""


class PeerLostError(GroupError):
    """The process of another rank has ended."""


class CollectiveMismatchError(GroupError):
    """The ranks made different calls; the group stays usable."""


class TorchError(Error, RuntimeError):
    """An operator of LibTorch failed."""


class InternalError(Error, RuntimeError):
    """A defect of the library; please report it."""


CLASSES = {
    capi.ACCEL_ERROR_INVALID_ARGUMENT: ArgumentError,
    capi.ACCEL_ERROR_INVALID_HANDLE: HandleError,
    capi.ACCEL_ERROR_TYPE_MISMATCH: KindError,
    capi.ACCEL_ERROR_SHAPE_MISMATCH: ShapeError,
    capi.ACCEL_ERROR_NOT_FOUND: NotFoundError,
    capi.ACCEL_ERROR_ALREADY_EXISTS: AlreadyExistsError,
    capi.ACCEL_ERROR_INVALID_STATE: StateError,
    capi.ACCEL_ERROR_UNSUPPORTED: UnsupportedError,
    capi.ACCEL_ERROR_NOT_IMPLEMENTED: UnsupportedError,
    capi.ACCEL_ERROR_OUT_OF_MEMORY: OutOfMemoryError,
    capi.ACCEL_ERROR_IO: FileError,
    capi.ACCEL_ERROR_CORRUPT: FileError,
    capi.ACCEL_ERROR_TIMEOUT: CollectiveTimeoutError,
    capi.ACCEL_ERROR_CANCELLED: GroupError,
    capi.ACCEL_ERROR_PEER_LOST: PeerLostError,
    capi.ACCEL_ERROR_COLLECTIVE_MISMATCH: CollectiveMismatchError,
    capi.ACCEL_ERROR_BACKEND: GroupError,
    capi.ACCEL_ERROR_TORCH: TorchError,
    capi.ACCEL_ERROR_INTERNAL: InternalError,
}
capi.use_errors(CLASSES)
