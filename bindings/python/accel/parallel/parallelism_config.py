# SPDX-License-Identifier: Apache-2.0
"""Which ranks do what together: the sizes of the mesh under Accelerate's names, and the mesh itself."""

import dataclasses
import math
import warnings
from typing import Any

from .. import capi
from ..generated import settings
from ..state.environment import parse_flag_from_env
from ..state.handlers import check_types, whole_number
from ..state.job import Job, current
from ..state.options import read_variables
from ..state.process import Group
from .parallelism_handlers import DeepSpeedSequenceParallelConfig, TorchContextParallelConfig, TorchTensorParallelConfig, TorchTensorParallelPlugin

# Accelerate's names of the axes, in the order of the mesh, and the engine's: cp and sp are two ways to split sequences along one axis.
_AXES = {"pp": "pipeline", "dp_replicate": "replicate", "dp_shard": "shard", "cp": "context", "sp": "context", "tp": "tensor"}
_JOINT = {"dp": ("dp_replicate", "dp_shard"), "dp_shard_cp": ("dp_shard", "cp"), "dp_cp": ("dp_replicate", "dp_shard", "cp")}
_HANDLERS = {"tp": TorchTensorParallelConfig, "cp": TorchContextParallelConfig, "sp": DeepSpeedSequenceParallelConfig}


def _axes_of_job():
    """The names of the axes of the job's mesh, of cp and sp the one that it has."""
    config = Job.parallelism_config
    without = "cp" if config is not None and config.sp_enabled else "sp"
    return [axis for axis in _AXES if axis != without]


def _axes_of(names):
    """The engine's text for one name or several: Accelerate's, joint ones, or the engine's own."""
    names = [names] if isinstance(names, str) else names
    return ",".join(_AXES.get(axis, axis) for name in names for axis in _JOINT.get(name, (name,)))


class Mesh:
    """The ranks as a grid with named axes: those of the job, `accelerator.torch_device_mesh`, or `Mesh({"expert": 2, "replica": 4})` for
    communication of the program's own. An axis is called as in `ParallelismConfig` ("tp", "dp_cp") or as in the engine ("tensor")."""

    def __init__(self, axes: "dict[str, int] | None" = None):
        self.handle = capi.accel_state_mesh(current()) if axes is None else capi.accel_mesh_create(
            current(), ",".join(axes), list(axes.values()))
        known = _axes_of_job() if axes is None else axes
        self.mesh_dim_names = tuple(axis for axis in known if axes is not None or self.size(axis) > 1)

    def __getitem__(self, axes: Any) -> "Mesh":
        """The mesh of these axes alone, as of torch's DeviceMesh."""
        names = (axes,) if isinstance(axes, str) else tuple(axes)
        for name in names:
            self.size(name)  # an unknown one is an error
        made = Mesh.__new__(Mesh)
        made.handle, made.mesh_dim_names = self.handle, names
        return made

    def _chosen(self, axes):
        """The engine's text for axes that are given by name or number; None: all of this mesh."""
        return _axes_of(self.mesh_dim_names if axes is None else self.mesh_dim_names[axes] if isinstance(axes, int) else axes)

    def size(self, axes: Any = None) -> int:
        """The number of ranks along one axis, or along several."""
        chosen = self._chosen(axes)
        return capi.accel_mesh_size(self.handle, chosen) if chosen else 1

    def get_local_rank(self, axes: Any = None) -> int:
        """Where this rank is along them."""
        chosen = self._chosen(axes)
        return capi.accel_mesh_coordinate(self.handle, chosen) if chosen else 0

    def get_group(self, axes: Any = None) -> Group:
        """The ranks that differ from this one along these axes only. All of them must call."""
        return Group.of(capi.accel_mesh_group(self.handle, self._chosen(axes)))

    def get_coordinate(self) -> "list[int]":
        """Where this rank is along each axis."""
        return [self.get_local_rank(axis) for axis in self.mesh_dim_names]

    ndim = property(lambda self: len(self.mesh_dim_names))
    shape = property(lambda self: tuple(self.size(axis) for axis in self.mesh_dim_names))

    def __repr__(self):
        return f"Mesh({capi.accel_mesh_describe(self.handle)})"


def _enabled(*axes):
    return property(lambda self: [axis for axis in axes if self.size_of(axis) > 1])


def _is_enabled(axis):
    return property(lambda self: self.size_of(axis) > 1)


@dataclasses.dataclass
class ParallelismConfig(settings.ParallelismConfig):
    """The sizes of the mesh. None: from PARALLELISM_CONFIG_*, else 1; where all are 1, every rank is a replica.

    Data are shared out and gradients averaged by them, and prepared models are split along tp (docs/parallelism.md). cp and sp are two ways to
    split sequences, of which one can be above 1. ep_size ranks of one copy of a model have different experts. The handlers say how; None: by their defaults, where the size is above 1.
    """

    def __post_init__(self):
        read_variables(self, *self._variables)
        for axis in ("dp_replicate", "dp_shard", "tp", "cp", "sp", "pp", "ep"):
            setattr(self, f"{axis}_size", whole_number(f"{axis}_size", self.size_of(axis), 1))
        for name, only in (("cp_backend", "torch"), ("sp_backend", "deepspeed")):
            if getattr(self, name) != only:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected {only!r}")
        if self.sp_size > 1 and self.cp_size > 1:
            raise ValueError(f"cp_size={self.cp_size} and sp_size={self.sp_size} both split sequences: expected one of them above 1")
        of_one_copy = self.dp_shard_size * self.cp_size * self.sp_size * self.tp_size
        if of_one_copy % self.ep_size:
            raise ValueError(f"ep_size={self.ep_size}: expected a divisor of the {of_one_copy} ranks of one copy of the model (dp_shard_size x cp_size x "
                             "sp_size x tp_size)")
        for axis, kind in _HANDLERS.items():
            handler = getattr(self, f"{axis}_handler")
            if handler is None and self.size_of(axis) > 1:
                setattr(self, f"{axis}_handler", kind())
            elif handler is not None and not isinstance(handler, kind):
                raise ValueError(f"{axis}_handler is a {type(handler).__name__}; expected a {kind.__name__}")

    def size_of(self, axis: str) -> int:
        return getattr(self, f"{axis}_size")

    dp_dim_names = _enabled("dp_replicate", "dp_shard")
    non_dp_dim_names = _enabled("tp", "cp", "sp")
    dp_shard_cp_dim_names = _enabled("dp_shard", "cp")
    dp_cp_dim_names = _enabled("dp_replicate", "dp_shard", "cp")
    dp_replicate_enabled, dp_shard_enabled, tp_enabled = _is_enabled("dp_replicate"), _is_enabled("dp_shard"), _is_enabled("tp")
    cp_enabled, sp_enabled, pp_enabled = _is_enabled("cp"), _is_enabled("sp"), _is_enabled("pp")

    @property
    def fsdp_dim_names(self) -> list:
        """The axes of sharded data parallelism, replication included."""
        return [*(["dp_replicate"] if self.dp_replicate_enabled else []), "dp_shard_cp"]

    @property
    def active_mesh_dims(self) -> list:
        return self.dp_dim_names + self.non_dp_dim_names

    @property
    def data_parallel_size(self) -> int:
        return self.dp_replicate_size * self.dp_shard_size

    @property
    def non_data_parallel_size(self) -> int:
        return self.tp_size * self.cp_size * self.sp_size

    @property
    def total_size(self) -> int:
        return math.prod(map(self.size_of, _AXES))

    def to_engine(self) -> dict:
        """Settings of the state. With sizes of 1 alone the engine makes every rank a replica, as Accelerate does."""
        sizes = {"pipeline_parallel_size": self.pp_size, "data_parallel_replicate_size": self.dp_replicate_size,
                 "data_parallel_shard_size": self.dp_shard_size, "context_parallel_size": self.cp_size * self.sp_size,
                 "tensor_parallel_size": self.tp_size, "expert_parallel_size": self.ep_size}
        return {} if self.total_size == 1 else sizes

    def _validate_accelerator(self, accelerator):
        """Checks the configuration against the job that it is for."""
        if self.total_size == 1 and accelerator.multi_device:
            self.dp_replicate_size = accelerator.num_processes
        is_sharded = self.dp_shard_enabled or self.cp_enabled or self.sp_enabled
        if self.total_size > 1 and accelerator.is_fsdp2 and not is_sharded:
            raise ValueError("models are sharded under version 2 of FSDP's settings, and parallelism_config has no axis for it: expected dp_shard_size or "
                             "cp_size above 1")
        unused = [axis for axis in _HANDLERS if getattr(self, f"{axis}_handler") is not None and self.size_of(axis) == 1]
        if unused and accelerator.is_main_process:
            warnings.warn("\n".join(f"ParallelismConfig.{axis}_handler has no effect: {axis}_size is 1" for axis in unused), UserWarning, stacklevel=3)

    device_mesh = None  # once get_device_mesh() was asked

    def get_device_mesh(self, device_type: "str | None" = None) -> Mesh:
        """The mesh of the job. A type of devices must be the job's."""
        own = capi.accel_device(current()).type
        if device_type not in (None, own):
            raise ValueError(f"get_device_mesh({device_type!r}): the ranks of this job are on {own!r}; expected this, or None")
        self.device_mesh = Mesh()
        return self.device_mesh

    def to_json(self) -> dict:
        """The settings as values that JSON has."""
        return {name: dict(vars(value)) if hasattr(value, "__dict__") else value for name, value in vars(self).items() if name != "device_mesh"}

    def _get_mesh(self) -> tuple:
        """Names and sizes of the axes with more than one rank, the outermost first."""
        axes = [axis for axis in ("dp_replicate", "dp_shard", "cp", "sp", "tp") if axis in self.active_mesh_dims]
        return tuple(axes), tuple(map(self.size_of, axes))

    def build_device_mesh(self, device_type: str) -> Any:
        """A DeviceMesh of torch with these axes, for a program with a process group of its own in torch.distributed; None without axes, and as in
        Accelerate with sp_size above 1."""
        names, sizes = self._get_mesh()
        if not names or self.sp_enabled:
            return None
        from torch.distributed import device_mesh

        mesh = device_mesh.init_device_mesh(device_type, sizes, mesh_dim_names=names)
        for joint, axes in (("dp", self.dp_dim_names), ("dp_shard_cp", self.dp_shard_cp_dim_names), ("dp_cp", self.dp_cp_dim_names)):
            if axes:
                mesh[axes]._flatten(joint)
        return mesh


def chosen_parallelism(given, plugin):
    """The configuration that an Accelerator was given, also under the former name; else the environment's, or None."""
    check_types(parallelism_config=(given, ParallelismConfig), torch_tp_plugin=(plugin, TorchTensorParallelPlugin))
    if plugin is not None:
        warnings.warn("torch_tp_plugin is deprecated: expected parallelism_config=ParallelismConfig(tp_size=...)", FutureWarning, stacklevel=3)
    if given is None and plugin is not None:
        return ParallelismConfig(tp_size=plugin.tp_size)
    if given is None and parse_flag_from_env("ACCELERATE_USE_PARALLELISM_CONFIG"):
        return ParallelismConfig()
    return given


def layer_options(config, changed):
    """How the layers of a model are split, with some fields of its own."""
    handler = config.tp_handler if config is not None and config.tp_enabled else TorchTensorParallelConfig()
    return handler.to_engine(changed)
