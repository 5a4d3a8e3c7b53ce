# SPDX-License-Identifier: Apache-2.0
"""The program's place in its job: the engine's state, one for the whole process, and what it was made from."""

import contextlib
import os
import weakref
from typing import Any

from .. import capi
from ..engine import interrupts
from ..generated import errors
from . import machine
from .environment import parse_flag_from_env
from .options import fill


class Job:
    """The engine's states, and what the job was made from."""

    handle: Any = None  # of the latest Accelerator, else of the PartialState
    was_made = False  # also when it is gone
    settings: dict = {}
    accelerator = False  # whether an Accelerator made it
    begins_again = False  # whether there was an Accelerator, before a reset
    handles: Any = weakref.WeakKeyDictionary()  # of each Accelerator
    groups: list = []  # the handles of those that the program is in
    debug: Any = None  # what the program has set
    fsdp_plugin: Any = None  # how models are sharded: by these settings,
    deepspeed_plugins: Any = None  # or by those of DeepSpeed, one or several by name
    parallelism_config: Any = None  # what the latest Accelerator was given
    dynamo_plugin: Any = None
    megatron_lm_plugin: Any = None  # what models are split and trained by, in Megatron-LM's words


@contextlib.contextmanager
def _without_plugins():
    """The engine neither refuses a job that is to follow Megatron-LM or is to be compiled, which this package does by its plugins, nor follows a
    configuration file that says the same."""
    asked = {name: os.environ[name] for name in ("ACCELERATE_USE_MEGATRON_LM", "ACCELERATE_DYNAMO_BACKEND") if name in os.environ}
    os.environ.update(dict.fromkeys(asked, "no"))
    try:
        yield
    finally:
        os.environ.update(asked)


def connect(settings: dict) -> None:
    """Joins the job. With other settings than before the ranks meet again; all of them must do so."""
    settings = {name: value for name, value in settings.items() if value is not None}
    if Job.handle is not None and settings == Job.settings:
        return
    leave()
    interrupts.watch()
    Job.was_made = True
    with _without_plugins():
        Job.handle = capi.accel_state_create(fill(capi.accel_state_options_t(), settings))
    Job.settings = settings
    if is_set("cpu_affinity") and parse_flag_from_env("ACCELERATE_DEBUG_MODE"):
        machine.log_affinity(capi.accel_local_process_index(Job.handle))


def is_set(name):
    """Whether a setting of the job is on, by a call, a variable or a file."""
    return f"\n{name} = yes" in capi.accel_state_describe(Job.handle)


def share(settings: dict) -> None:
    """Another training in the same job: the ranks do not meet again. Settings of the job itself can only be repeated."""
    with _without_plugins():
        Job.handle = capi.accel_state_share(Job.handle, fill(capi.accel_state_options_t(), settings))


def begin(settings: dict) -> None:
    """An Accelerator where there is none. After a reset it shares the job of those before and has none of their settings and objects."""
    of_process = Job.settings  # what a PartialState was made with still holds
    if Job.begins_again:
        try:
            return share(settings)
        except errors.ArgumentError:  # it has other settings of the job: the ranks meet again
            leave()
    connect({**of_process, **settings})
    Job.settings = of_process


def leave():
    """Leaves the job without waiting for the others."""
    if Job.handle is not None:
        capi.accel_destroy_process_group(Job.handle)
    Job.handle, Job.settings, Job.accelerator, Job.begins_again, Job.groups, Job.debug = None, {}, False, False, [], None
    shard_by(None, None)
    Job.parallelism_config = Job.dynamo_plugin = Job.megatron_lm_plugin = None
    Job.handles.clear()


def shard_by(fsdp_plugin, deepspeed_plugins):
    """How the models of this job are sharded."""
    Job.fsdp_plugin, Job.deepspeed_plugins = fsdp_plugin, deepspeed_plugins


def sharded_by():
    """The plugins that shard_by() was given."""
    return Job.fsdp_plugin, Job.deepspeed_plugins


def keep(accelerator):
    """The latest state becomes that of an Accelerator, for as long as the job lasts."""
    Job.handles[accelerator] = Job.handle


class NoStateError(RuntimeError, AttributeError):
    """There is no job: none was made yet, or the program has left it. An AttributeError too, as in Accelerate."""

    def __init__(self, kind):
        super().__init__(f"`{kind}` object has no attribute that tells of a job, for there is none. This happens if `{kind}._reset_state()` was "
                         "called, or nothing was made yet: make an Accelerator() or a PartialState() first")


def current(accelerator=None):
    """The engine's state: of the group that the program is in, else of the Accelerator, else the latest. An error when there is no job."""
    if Job.handle is None:
        raise NoStateError("PartialState")
    return Job.groups[-1] if Job.groups else Job.handle if accelerator is None else Job.handles.get(accelerator, Job.handle)


def joined():
    """The engine's state, in a job that begins here if there is none."""
    if Job.handle is None:
        connect({})
    return current()


def is_main_process(state):
    """Whether this process is the main one: rank 0, and the last one under Megatron-LM's settings, where it has the losses of a pipeline."""
    return bool((capi.accel_is_main_process if Job.megatron_lm_plugin is None else capi.accel_is_last_process)(state))


def is_local_main_process(state):
    """Whether it is the main one of its host; under Megatron-LM's settings the last one of all."""
    return bool((capi.accel_is_local_main_process if Job.megatron_lm_plugin is None else capi.accel_is_last_process)(state))


def data_parallel_size():
    """Over how many ranks the data are shared out: those along the axes replicate and shard of the mesh."""
    return capi.accel_mesh_size(capi.accel_state_mesh(current()), "replicate,shard")


def data_parallel_index():
    """Which of these this rank is."""
    return capi.accel_mesh_coordinate(capi.accel_state_mesh(current()), "replicate,shard")


def is_made():
    """Whether this process has a place in a job now."""
    return Job.handle is not None


def was_made():
    """Whether this process has had one: its engine has threads then."""
    return Job.was_made


def is_initialized():
    return Job.accelerator
