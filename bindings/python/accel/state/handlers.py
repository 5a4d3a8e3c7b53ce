# SPDX-License-Identifier: Apache-2.0
"""Settings as dataclasses, with the names of Accelerate. None: not given, so that the environment or the default decides."""

import operator
import re
import warnings
from dataclasses import dataclass
from datetime import timedelta

from ..generated import settings
from .options import engine_options


def check_types(**given):
    """Each is (value, type): what is given, and not None, must be of the type."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}; expected a {kind.__name__}")


def whole_number(name, value, least=None):
    """The value as an int, or None; refuses what is not a whole number, as 2.5, and what is too small."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: expected a whole number")
    if least is not None and value < least:
        raise ValueError(f"{name}={value}: expected at least {least}")
    return operator.index(value)


@dataclass
class InitProcessGroupKwargs(settings.InitProcessGroupKwargs):
    """How ranks meet, at `init_method` "tcp://HOST:PORT" or as the environment says. The backend follows from the devices: `backend` is checked, not chosen, unless it is "staged", through host memory, or
    names devices: "cuda:staged". Without `timeout` it is 600 s for "nccl", the default as in Accelerate, which means no backend of the CPU, and
    1800 s for others."""

    def __post_init__(self):
        if self.timeout is None:
            self.timeout = timedelta(seconds=600 if self.backend == "nccl" else 1800)

    def to_engine(self):
        """Settings of the state. `backend` only passes on the engine's own names: names of Accelerate are checked."""
        is_own = self.backend is not None and (self.backend == "staged" or ":" in self.backend)
        return {"backend": self.backend if is_own else None, "timeout_ms": int(self.timeout.total_seconds() * 1000),
                **self._rendezvous()}

    def _rendezvous(self):
        """Where the ranks meet: with "env://", which is the default, as MASTER_ADDR and MASTER_PORT say."""
        if self.init_method in (None, "env://"):
            return {}
        place = re.fullmatch(r"tcp://(\[[^\]]+\]|[^:/?]+):(\d+)", str(self.init_method))
        if place is None:
            raise ValueError(f"init_method={self.init_method!r}: expected None, \"env://\" or \"tcp://HOST:PORT\"")
        return {"main_process_ip": place[1].strip("[]"), "main_process_port": int(place[2])}


_BACKENDS_OF_TORCH = ("gloo", "mpi", "ucc", "nccl", "xccl", "ccl", "hccl", "cncl", "eccl", "mccl", "tccl", "neuron", "xla", "hpu")


def check_backend(name, state):
    """A backend that a program of torch asks for. The engine carries the collectives by what it has for the devices of the job, whichever of torch's
    names that is."""
    carried = state.backend
    if name is None or not state.use_distributed or name == carried or name == "staged" or ":" in name:
        return
    if name not in _BACKENDS_OF_TORCH:
        raise ValueError(f"backend={name!r}: the collectives of this job are carried by {carried!r}; expected None, or a backend of torch "
                         "that its devices have")


@dataclass
class DataLoaderConfiguration(settings.DataLoaderConfiguration):
    """How the ranks share the batches of a loader. None: orders follow from seed and epoch, and load_state() takes loaders along."""

    def to_engine(self):
        return engine_options(self, data_seed=whole_number("data_seed", self.data_seed, least=0))

    def for_torch(self):
        """The settings of a loader of torch, whose batches a scope or an adapter splits."""
        if self.sequence_keys is not None:
            raise ValueError("sequence_keys is for loaders of accel: expected maybe_context_parallel(), or deepspeed_ulysses_dl_adapter() for a loader "
                             "of torch")
        return self


def warn_of_copies_that_block(non_blocking, pin_memory):
    """Warns for a loader whose batches go to a device."""
    if non_blocking and not pin_memory:
        warnings.warn("non_blocking=True for a loader without pin_memory: copies to a GPU from memory that is not page-locked block all the same; "
                      "give the DataLoader pin_memory=True, or leave non_blocking out", stacklevel=2)


@dataclass
class ProjectConfiguration(settings.ProjectConfiguration):
    """Where checkpoints and logs go."""

    def set_directories(self, project_dir=None):
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir

    def __post_init__(self):
        self.set_directories(self.project_dir)
