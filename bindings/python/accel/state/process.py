# SPDX-License-Identifier: Apache-2.0
"""PartialState, AcceleratorState and GradientState: what a program sees of its job."""

import contextlib
import functools
import weakref
from typing import Any

from .. import capi
from ..compat import missing
from ..engine.scopes import scope
from ..engine.values import again, keys_of, of_kind, to_engine
from ..generated import methods
from ..generated.choices import CHOICES
from ..generated.enums import DistributedType, PrecisionType
from ..tensors.device import for_program
from .environment import parse_flag_from_env
from .handlers import InitProcessGroupKwargs, check_backend
from .job import Job, NoStateError, begin, connect, current, is_local_main_process, is_main_process, is_set, leave, shard_by, share
from .options import fill

_DISTRIBUTED = {getattr(capi, f"ACCEL_DISTRIBUTED_{kind.name}"): kind for kind in DistributedType}


def of_process(function: Any) -> Any:
    """A truth about the process, which holds as long as the job does, whatever became of the AcceleratorState."""
    return property(lambda _: bool(function(current())), doc=function.__doc__)


def of_state(function: Any, kind: Any = None) -> Any:
    """A property that the engine's state tells, with the text of the header."""
    return property(lambda self: function(self._current()) if kind is None else kind(function(self._current())), doc=function.__doc__)


def get_current_device_type():
    """The kind of device that a job would use here, and its distributed type, before any device is initialised."""
    kind = capi.accel_device_default().type
    own = f"MULTI_{kind.upper()}"
    return kind, own if own in DistributedType else "MULTI_GPU"


@contextlib.contextmanager
def _after_last():
    """The last process runs the body first, the others after it, also if it fails there."""
    state = current()
    is_last = capi.accel_is_last_process(state)
    if not is_last:
        capi.accel_wait_for_everyone(state)
    try:
        yield
    except BaseException:
        with contextlib.suppress(capi.Error):  # what ended the body is the news
            if is_last:
                capi.accel_wait_for_everyone(state)
        raise
    if is_last:
        capi.accel_wait_for_everyone(state)


class View(methods.View):
    """Properties of all ranks' states."""

    @staticmethod
    def _current():
        """The engine's state that is asked."""
        return current()

    device: Any = of_state(capi.accel_device, for_program)

    @property
    def default_device(self) -> Any:
        """The device that a job without `cpu` would compute on."""
        return for_program(capi.accel_device_default())

    @property
    def distributed_type(self) -> DistributedType:
        if Job.megatron_lm_plugin is not None:
            return DistributedType.MEGATRON_LM
        if Job.deepspeed_plugins is not None:
            return DistributedType.DEEPSPEED
        if Job.fsdp_plugin is not None and self.use_distributed:
            return DistributedType.FSDP
        return _DISTRIBUTED[capi.accel_distributed_type(self._current())]

    num_processes: int = of_state(capi.accel_num_processes)
    process_index: int = of_state(capi.accel_process_index)
    local_process_index: int = of_state(capi.accel_local_process_index)
    is_main_process: bool = of_process(is_main_process)
    is_local_main_process: bool = of_process(is_local_main_process)
    is_last_process: bool = of_process(capi.accel_is_last_process)
    use_distributed: bool = of_state(capi.accel_use_distributed, bool)

    backend: "str | None" = of_state(capi.accel_backend, lambda name: name or None)

    @property
    def debug(self) -> bool:
        """Debug mode. Ranks that make different calls get an error in any mode."""
        return bool(capi.accel_debug(self._current())) if Job.debug is None else Job.debug

    @debug.setter
    def debug(self, value):
        Job.debug = bool(value)

    @property
    def mixed_precision(self) -> str:
        number = capi.accel_mixed_precision(self._current())
        return next(name for name, value in CHOICES["precision"].items() if value == number)

    local_num_processes: int = of_state(capi.accel_local_num_processes)
    @property
    def fork_launched(self) -> bool:
        """Whether notebook_launcher() started this process, as the environment says now."""
        return parse_flag_from_env("FORK_LAUNCHED")

    def wait_for_everyone(self) -> None:
        """A barrier."""
        capi.accel_wait_for_everyone(current())

    def main_process_first(self):
        """The main process runs the body first, the others after it. Under Megatron-LM's settings the main one is the last."""
        return _after_last() if Job.megatron_lm_plugin is not None else scope(capi.accel_main_process_first_begin, current())

    def local_main_process_first(self):
        return _after_last() if Job.megatron_lm_plugin is not None else scope(capi.accel_local_main_process_first_begin, current())

    def split_between_processes(self, inputs, apply_padding=False):
        """This rank's share of a list, tuple, tensor or of each member of a dict; as a context manager too."""
        return _Share(inputs, apply_padding)

    def on_main_process(self, function=None):
        """The function runs on the main process only."""
        return self._where(function, lambda: self.is_main_process)

    def on_local_main_process(self, function=None):
        return self._where(function, lambda: self.is_local_main_process)

    def on_last_process(self, function):
        return self._where(function, lambda: self.is_last_process)

    def on_process(self, function=None, process_index=None):
        return self._where(function, lambda: self.process_index == process_index or not self.use_distributed)

    def on_local_process(self, function=None, local_process_index=None):
        return self._where(function, lambda: self.local_process_index == local_process_index or not self.use_distributed)

    @staticmethod
    def _where(function, here):
        if function is None:
            return lambda decorated: View._where(decorated, here)

        @functools.wraps(function)
        def run(*args, **kwargs):
            return function(*args, **kwargs) if here() else None

        return run

    def print(self, *args, **kwargs):
        """print() on the first rank of each host."""
        if self.is_local_main_process:
            print(*args, **kwargs)

    def destroy_process_group(self, group=None) -> None:
        """Leaves the group, if the program is in one. `group` must be None: a Group is left by its `with`."""
        if group is not None:
            raise ValueError(f"group={group!r}: expected None; the job's group is left here, and one of its ranks by the end of its `with`")
        if Job.handle is not None:
            capi.accel_destroy_process_group(current())

    @property
    def is_fsdp2(self) -> bool:
        """Whether models are sharded under version 2 of the settings."""
        return self.distributed_type == DistributedType.FSDP and Job.fsdp_plugin.fsdp_version == 2

    def __getattr__(self, name):  # also when a property of its own has failed with an AttributeError, which is the news then
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        if missing.text(name):
            raise NotImplementedError(missing.text(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self):
        return (f"Distributed environment: {self.distributed_type}{f'  Backend: {self.backend}' if self.backend else ''}\n"
                f"Num processes: {self.num_processes}\nProcess index: {self.process_index}\n"
                f"Local process index: {self.local_process_index}\nDevice: {self.device}\n")


class Group:
    """Some of the ranks: `with Group([0, 1]):` makes them the job of the body, where ranks are counted from 0 within the group, and
    collectives, prepared models and checkpoints are among them. Its members make it, the other ranks do not."""

    def __init__(self, ranks):
        self.handle = capi.accel_group_create(current(), list(ranks))

    @classmethod
    def of(cls, handle):
        """The group that the engine made."""
        group = cls.__new__(cls)
        group.handle = handle
        return group

    @classmethod
    def split(cls, color, key=0):
        """All ranks call this: those of one color form a group, ordered by key and then by rank."""
        return cls.of(capi.accel_group_split(current(), color, key))

    @classmethod
    def shrink(cls, wait=10.0):
        """After the loss of a rank: a group of the ranks that call this within `wait` seconds. Nothing but that is left of the job."""
        return cls.of(capi.accel_group_shrink(current(), int(wait * 1000)))

    def __enter__(self):
        current()
        Job.groups.append(self.handle)
        return self

    def __exit__(self, *_):
        if Job.groups:  # the body may have left the job
            Job.groups.pop()


class _Share:
    """A rank's share of something: what it holds, usable in `with` as Accelerate has it."""

    def __init__(self, inputs, apply_padding):
        if hasattr(inputs, "select") and hasattr(inputs, "column_names"):  # a dataset of the package datasets
            self.share = inputs.select(capi.accel_split_between_processes(current(), list(range(len(inputs))), int(apply_padding)))
        elif isinstance(inputs, (list, tuple, dict)) or hasattr(inputs, "__dlpack__"):
            places = dict(zip(keys_of(inputs), map(_indices_of, inputs.values()))) if isinstance(inputs, dict) else _indices_of(inputs)
            share = capi.accel_split_between_processes(current(), places, int(apply_padding))
            self.share = (again(inputs, {key: _items_at(inputs[key], share[place]) for place, key in zip(keys_of(inputs), inputs)})
                          if isinstance(inputs, dict) else _items_at(inputs, share))
        else:
            self.share = inputs

    def __enter__(self):
        return self.share

    def __exit__(self, *_):
        return None


def _indices_of(value):
    """The stand-in in the engine: for lists and tuples the places, so that their items stay as they are."""
    return list(range(len(value))) if isinstance(value, (list, tuple)) else to_engine(value)


def _items_at(value, share):
    if not isinstance(value, (list, tuple)):
        return of_kind(value, share)
    items = [value[place] for place in share]
    return tuple(items) if hasattr(value, "_fields") else again(value, items)


class _OfClass:
    """A property of the class itself."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, kind):
        return self.function()


_OF_PROCESS = ("backend", "device", "distributed_type", "num_processes", "process_index", "local_process_index")


class PartialState(View):
    """Rank, device and process control, without a training loop. All instances are one."""

    _shared_state = _OfClass(lambda: {} if Job.handle is None else {"_cpu": is_set("cpu"), **{name: getattr(PartialState(), name) for name in _OF_PROCESS}})

    def __init__(self, cpu=False, *, backend=None, init_method=None, timeout=None, **settings):
        if Job.handle is None:
            group = InitProcessGroupKwargs(backend, init_method, timeout).to_engine()
            if timeout is None:
                del group["timeout_ms"]
            connect({"cpu": True if cpu else None, **group, **settings})
            check_backend(backend, self)

    @property
    def initialized(self) -> bool:
        return Job.handle is not None

    @staticmethod
    def is_made():
        """Whether there is a state already, without making one."""
        return Job.handle is not None

    @staticmethod
    def _reset_state():
        leave()


def current_of_accelerator(accelerator=None):
    """current(), when there is still an AcceleratorState."""
    if not Job.accelerator:
        raise NoStateError("AcceleratorState")
    return current(accelerator)


class AcceleratorState(View):
    """A PartialState, once there is an Accelerator. All instances are one."""

    _current = staticmethod(current_of_accelerator)
    _shared_state = _OfClass(lambda: {"mixed_precision": AcceleratorState().mixed_precision} if Job.accelerator else {})

    def __init__(self, mixed_precision=None, cpu=False, dynamo_plugin=None, deepspeed_plugin=None, fsdp_plugin=None, torch_tp_plugin=None,
                 megatron_lm_plugin=None, parallelism_config=None, _from_accelerator=False, **settings):
        if deepspeed_plugin is not None or fsdp_plugin is not None:
            raise ValueError("AcceleratorState() does not say how models are sharded: give the plugin to the Accelerator()")
        if torch_tp_plugin is not None:
            raise ValueError("AcceleratorState() does not say how models are split: give parallelism_config to the Accelerator()")
        if mixed_precision is not None:
            mixed_precision = str(mixed_precision).lower()
            if mixed_precision not in PrecisionType:
                raise ValueError(f"mixed_precision={mixed_precision!r}: expected one of {PrecisionType.list()}")
        if Job.accelerator and mixed_precision not in (None, self.mixed_precision):
            raise ValueError(f"the Accelerator is there already with mixed_precision={self.mixed_precision!r}; all of a program have one")
        if not _from_accelerator:
            if Job.accelerator:
                return
            raise ValueError("make an Accelerator() first: it makes the AcceleratorState")
        of_mesh = parallelism_config.to_engine() if parallelism_config else {}
        given = {"cpu": True if cpu else None, **of_mesh, **settings}
        if Job.accelerator:
            share({**given, "mixed_precision": self.mixed_precision})
            self._follow(parallelism_config, dynamo_plugin, megatron_lm_plugin)
            return
        given["mixed_precision"] = mixed_precision
        given = {name: value for name, value in given.items() if value is not None}
        begin(given)
        Job.accelerator = True
        self._follow(parallelism_config, dynamo_plugin, megatron_lm_plugin)

    def _follow(self, parallelism_config, dynamo_plugin, megatron_lm_plugin):
        Job.parallelism_config, Job.dynamo_plugin, Job.megatron_lm_plugin = parallelism_config, dynamo_plugin, megatron_lm_plugin
        if megatron_lm_plugin is not None:
            megatron_lm_plugin.set_mixed_precision(self.mixed_precision)

    @property
    def initialized(self) -> bool:
        return Job.accelerator

    torch_tp_plugin = None  # the Accelerator makes a ParallelismConfig of it

    @property
    def parallelism_config(self):
        """Which ranks do what together, as the latest Accelerator was given; None: all are replicas, or shards of one."""
        return Job.parallelism_config

    @property
    def device_mesh(self):
        """The ranks by kind of parallelism; None without a parallelism_config."""
        return None if Job.parallelism_config is None else Job.parallelism_config.get_device_mesh()

    @property
    def megatron_lm_plugin(self):
        """How models are split and trained, in Megatron-LM's words; None: by other settings."""
        return Job.megatron_lm_plugin

    @property
    def dynamo_plugin(self):
        """How models of torch are compiled, as the latest Accelerator was given."""
        from ..training.compilation import TorchDynamoPlugin

        return TorchDynamoPlugin(backend="no") if Job.dynamo_plugin is None else Job.dynamo_plugin

    @property
    def fsdp_plugin(self):
        """How models are sharded; None: they are not, or by DeepSpeed's settings."""
        return Job.fsdp_plugin

    @property
    def deepspeed_plugins(self):
        """The plugin, or several by name; None: there is none."""
        return Job.deepspeed_plugins

    @property
    def deepspeed_plugin(self):
        """The one that is selected."""
        plugins = Job.deepspeed_plugins
        return next((plugin for plugin in plugins.values() if plugin.selected), None) if isinstance(plugins, dict) else plugins

    def get_deepspeed_plugin(self, name):
        """One of several plugins."""
        if not isinstance(Job.deepspeed_plugins, dict):
            raise ValueError(f"there are no plugins of DeepSpeed with names, such as {name!r}: give Accelerator(deepspeed_plugin={{...}})")
        if name not in Job.deepspeed_plugins:
            raise KeyError(f"no plugin {name!r}: expected one of {', '.join(map(repr, Job.deepspeed_plugins))}")
        return Job.deepspeed_plugins[name]

    def select_deepspeed_plugin(self, name=None):
        """Models that are prepared from now on follow this plugin."""
        chosen = self.get_deepspeed_plugin(name)
        for plugin in Job.deepspeed_plugins.values():
            if plugin is not chosen:
                plugin._unselect()
        chosen.select(_from_accelerator_state=True)

    def __repr__(self):
        return super().__repr__() + f"Mixed precision: {self.mixed_precision}\n"

    @staticmethod
    def _reset_state(reset_partial_state=False):
        Job.begins_again = Job.begins_again or Job.accelerator
        Job.accelerator = False
        Job.megatron_lm_plugin = None
        shard_by(None, None)
        if reset_partial_state:
            leave()


# The settings of an accumulation of which nothing is said.
_DEFAULTS = {"num_steps": 1, "adjust_scheduler": False, "sync_with_dataloader": True, "sync_each_batch": False}

_running: list = []  # weak references to the prepared loaders whose loops are under way


def begin_loop(loader):
    """The loader is in GradientState's list until end_loop()."""
    _running.append(weakref.ref(loader))


def end_loop(loader):
    """The innermost loop over the loader ends, if there is one."""
    for place in reversed(range(len(_running))):
        if _running[place]() is loader:
            del _running[place]
            break
    _running[:] = [reference for reference in _running if reference() is not None]


@contextlib.contextmanager
def loop_over(loader):
    begin_loop(loader)
    try:
        yield
    finally:
        end_loop(loader)


def _set_accumulation(settings):
    """Changes some settings of the accumulation."""
    capi.accel_set_gradient_accumulation(current(), fill(capi.accel_gradient_accumulation_options_t(), settings))


class _Accumulation(dict):
    """The settings as they were when they were asked for. A change of one changes the job's."""

    def __setitem__(self, name, value):
        _set_accumulation({name: value})
        super().__setitem__(name, value)

    def update(self, *others, **settings):
        for name, value in dict(*others, **settings).items():
            self[name] = value


def _setting(name: str, kind: Any) -> Any:
    """A setting of the accumulation, which can be changed."""
    return property(lambda _: kind(capi.accel_gradient_accumulation(current())[name]), lambda _, value: _set_accumulation({name: value}))


class GradientState:
    """Gradient accumulation as it stands now. All instances are one, which has no attributes but these."""

    __slots__ = ("__weakref__",)
    _current = staticmethod(current)

    def __init__(self, gradient_accumulation_plugin=None):
        """A plugin replaces the settings of the job."""
        if gradient_accumulation_plugin is not None:
            plugin = gradient_accumulation_plugin
            self.plugin_kwargs = {"num_steps": plugin.num_steps or 1, "adjust_scheduler": bool(plugin.adjust_scheduler),
                                  "sync_with_dataloader": plugin.sync_with_dataloader, "sync_each_batch": plugin.sync_each_batch}

    @property
    def sync_gradients(self) -> bool:
        """Whether the backward of now completes a step."""
        return bool(capi.accel_sync_gradients(current()))

    @sync_gradients.setter
    def sync_gradients(self, sync):
        capi.accel_set_sync_gradients(current(), int(sync))

    def _set_sync_gradients(self, sync_gradients):
        self.sync_gradients = sync_gradients

    end_of_dataloader: bool = of_state(capi.accel_end_of_dataloader, bool)

    @property
    def dataloader_references(self) -> list:
        """The prepared loaders whose loops are under way, the outermost first."""
        return [loader for loader in (reference() for reference in _running) if loader is not None]

    @dataloader_references.setter
    def dataloader_references(self, loaders):
        _running[:] = [weakref.ref(loader) for loader in loaders if loader is not None]

    @property
    def active_dataloader(self) -> Any:
        """The innermost of them, or None."""
        return next(reversed(self.dataloader_references), None)

    @property
    def in_dataloader(self) -> bool:
        return self.active_dataloader is not None

    is_xla_gradients_synced = False  # there is no XLA here
    _shared_state = _OfClass(lambda: {} if Job.handle is None else {"plugin_kwargs": capi.accel_gradient_accumulation(current())})

    remainder: int = of_state(capi.accel_remainder)
    num_steps: int = _setting("num_steps", int)
    adjust_scheduler: bool = _setting("adjust_scheduler", bool)
    sync_with_dataloader: bool = _setting("sync_with_dataloader", bool)
    sync_each_batch: bool = _setting("sync_each_batch", bool)

    @property
    def plugin_kwargs(self) -> dict:
        """All settings. New settings replace all: a field that they leave out gets its default."""
        return _Accumulation(capi.accel_gradient_accumulation(current()))

    @plugin_kwargs.setter
    def plugin_kwargs(self, settings):
        _set_accumulation({**_DEFAULTS, **settings})

    @staticmethod
    def _reset_state():
        """Forgets the settings of accumulation, and loops over loaders that were left."""
        _running.clear()
        if Job.handle is not None:
            _set_accumulation(_DEFAULTS)

    @property
    def initialized(self) -> bool:
        return Job.handle is not None

    def __repr__(self):
        return (f"Sync Gradients: {self.sync_gradients}\nAt end of current dataloader: {self.end_of_dataloader}\n"
                f"Extra samples added: {self.remainder}\nGradient accumulation steps: {self.num_steps}\n")
