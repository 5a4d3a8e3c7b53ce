"""Settings as dataclasses, with the names of the reference. None: not given, so that the environment or the default decides."""

import copy
import operator
import re
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Optional, Union

from ..generated.choices import CHOICES, FIELDS
from .enums import DDPCommunicationHookType
from .environment import clear_environment


class KwargsHandler:
    """A group of settings."""

    def to_dict(self):
        return copy.deepcopy(self.__dict__)

    def to_kwargs(self):
        """Only what differs from the defaults, those without variables of the environment."""
        with clear_environment():
            default = type(self)().to_dict()
        return {name: value for name, value in self.to_dict().items() if default[name] != value}


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


def number_of(kind, name):
    """The number of a setting that is one of some texts."""
    if not isinstance(name, str):
        return name
    if name not in CHOICES[kind]:
        raise ValueError(f"{kind}={name!r}: expected one of {', '.join(map(repr, CHOICES[kind]))}")
    return CHOICES[kind][name]


def fill(options, settings, **renamed):
    """An options struct of the engine with the fields that are given; the others stay unset."""
    for name, value in settings.items():
        name = renamed.get(name, name)
        if value is not None and name is not None:
            if not hasattr(type(options), name):
                raise TypeError(f"there is no setting {name!r}")
            kind = FIELDS.get((type(options).__name__, name))
            setattr(options, name, number_of(kind, value) if kind else int(value) if isinstance(value, bool) else value)
    return options


@dataclass
class AutocastKwargs(KwargsHandler):
    """In which regions operators choose their precision."""

    enabled: bool = True
    cache_enabled: Optional[bool] = None

    def to_engine(self):
        from .. import capi

        return fill(capi.accel_autocast_options_t(), self.to_dict())


@dataclass
class GradScalerKwargs(KwargsHandler):
    """How losses are scaled under fp16."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: Optional[bool] = None

    def to_engine(self):
        from .. import capi

        return fill(capi.accel_grad_scaler_options_t(), self.to_dict())


@dataclass
class PowerSGDKwargs(KwargsHandler):
    """`comm_state_option` of the PowerSGD hooks; None: torch's default."""

    matrix_approximation_rank: Optional[int] = None
    start_power_sgd_iter: Optional[int] = None
    min_compression_rate: Optional[float] = None
    orthogonalization_epsilon: Optional[float] = None
    random_seed: Optional[int] = None
    use_error_feedback: Optional[bool] = None
    warm_start: Optional[bool] = None
    batch_tensors_with_same_shape: Optional[bool] = None


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """How gradients are averaged. None: the engine's default, which is torch's but for gradient_as_bucket_view (on)."""

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: float = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: Optional[bool] = None
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType = DDPCommunicationHookType.NO
    comm_wrapper: DDPCommunicationHookType = DDPCommunicationHookType.NO
    comm_state_option: Union[dict, PowerSGDKwargs] = field(default_factory=dict)

    def to_engine(self):
        from .. import capi

        settings = self.to_dict(ignore_keys=())
        if not self.bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb={self.bucket_cap_mb}: expected a number above 0")
        for name in ("comm_hook", "comm_wrapper"):
            settings[name] = DDPCommunicationHookType(settings[name]).value
        given = settings.pop("comm_state_option")
        options = fill(capi.accel_ddp_options_t(), {**settings, "bucket_cap_mb": float(self.bucket_cap_mb)}, dim=None)
        power = fill(capi.accel_power_sgd_options_t(), given if isinstance(given, dict) else given.to_dict())
        options.comm_state_option = power
        return options, power  # the second lives as long as the first is used

    def to_dict(self, ignore_keys=("comm_hook", "comm_wrapper", "comm_state_option")):
        """The settings of DistributedDataParallel; those that are not arguments of it are left out."""
        return {name: value for name, value in super().to_dict().items() if name not in ignore_keys}

    def register_comm_hook(self, model):
        raise NotImplementedError("DistributedDataParallelKwargs.register_comm_hook(): prepare() registers comm_hook and comm_wrapper when the "
                                  "Accelerator has these settings among its kwargs_handlers; a function of the program is a hook by "
                                  "register_comm_hook() of the prepared module")


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """How ranks meet, at `init_method` "tcp://HOST:PORT" or as the environment says. The backend follows from the devices: `backend` is checked, not chosen, unless it is "staged", through host memory, or
    names devices: "cuda:staged". Without `timeout` it is 600 s for "nccl", the default as in the reference, which means no backend of the CPU, and
    1800 s for others."""

    backend: Optional[str] = "nccl"
    init_method: Optional[str] = None
    timeout: Optional[timedelta] = None

    def __post_init__(self):
        if self.timeout is None:
            self.timeout = timedelta(seconds=600 if self.backend == "nccl" else 1800)

    def to_engine(self):
        """Settings of the state. Of `backend` only the engine's own names: those of the reference are checked."""
        is_own = self.backend is not None and (self.backend == "staged" or ":" in self.backend)
        return {"backend": self.backend if is_own else None, "timeout_ms": int(self.timeout.total_seconds() * 1000),
                **self._meeting_place()}

    def _meeting_place(self):
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
class GradientAccumulationPlugin(KwargsHandler):
    """How micro-batches are grouped into steps. Schedulers count accumulating steps only where adjust_scheduler is True: the
    reference's default says so, and is without effect there."""

    num_steps: Optional[int] = None
    adjust_scheduler: Optional[bool] = None
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False


@dataclass
class DataLoaderConfiguration(KwargsHandler):
    """How the ranks share the batches of a loader. None: orders follow from seed and epoch, and load_state() takes loaders along."""

    split_batches: bool = False
    dispatch_batches: Optional[bool] = None
    even_batches: bool = True
    use_seedable_sampler: Optional[bool] = None
    data_seed: Optional[int] = None
    non_blocking: bool = False
    use_stateful_dataloader: Optional[bool] = None

    def to_engine(self):
        from .. import capi

        return fill(capi.accel_dataloader_config_t(), {**self.to_dict(), "data_seed": whole_number("data_seed", self.data_seed, least=0)})


def warn_of_copies_that_block(non_blocking, pin_memory):
    """Of a loader whose batches go to a device."""
    if non_blocking and not pin_memory:
        warnings.warn("non_blocking=True for a loader without pin_memory: copies to a GPU from memory that is not page-locked block all the same; "
                      "give the DataLoader pin_memory=True, or leave non_blocking out", stacklevel=2)


@dataclass
class ProjectConfiguration(KwargsHandler):
    """Where checkpoints and logs go."""

    project_dir: Optional[str] = None
    logging_dir: Optional[str] = None
    automatic_checkpoint_naming: bool = False
    total_limit: Optional[int] = None
    iteration: int = 0
    save_on_each_node: bool = False

    def set_directories(self, project_dir=None):
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir

    def __post_init__(self):
        self.set_directories(self.project_dir)
