# SPDX-License-Identifier: Apache-2.0
"""Profiles of the program: by torch's profiler where the program uses torch, else by the engine's, with the same methods."""

import contextlib
import json
import os
import tempfile
import weakref
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from .. import capi
from ..engine.torch_types import torch_module
from ..generated import methods, settings
from ..state.job import current
from ..state.options import engine_options

ProfilerActivity = Literal["cpu", "xpu", "mtia", "cuda", "hpu"]


class ProfilerAction(IntEnum):
    """The action of a step of a schedule."""

    NONE = capi.ACCEL_PROFILE_NONE
    WARMUP = capi.ACCEL_PROFILE_WARMUP
    RECORD = capi.ACCEL_PROFILE_RECORD
    RECORD_AND_SAVE = capi.ACCEL_PROFILE_RECORD_AND_SAVE


@dataclass
class ProfileKwargs(settings.ProfileKwargs):
    """The settings of a profile. `schedule_option` has wait, warmup, active, and where wanted repeat (0: for ever) and skip_first;
    without it everything is recorded. on_trace_ready(profile) runs when a cycle of it is complete. In `output_trace_dir` each rank writes
    profile_<rank>.json."""

    def build(self):
        """The profiler, to be used in `with`: torch.profiler.profile, or a Profile where torch is not imported."""
        torch = torch_module()
        if torch is None:
            return Profile(self)
        import torch.profiler as profiler

        schedule = None if self.schedule_option is None else profiler.schedule(**self.schedule_option)
        return profiler.profile(activities=None if self.activities is None else [_torch_activity(torch, name) for name in self.activities],
                                schedule=schedule, on_trace_ready=self.on_trace_ready, **self._recorded())

    def _recorded(self):
        return {name: getattr(self, name) for name in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")}

    def to_engine(self):
        """The options of the engine's profiler."""
        activities = None if self.activities is None else ",".join(_known(name, ProfilerActivity.__args__) for name in self.activities)
        schedule = dict(self.schedule_option or {})
        if self.schedule_option is not None:
            unknown = schedule.keys() - {"wait", "warmup", "active", "repeat", "skip_first"}
            if unknown or not {"wait", "warmup", "active"} <= schedule.keys():
                raise TypeError(f"schedule_option={self.schedule_option!r}: expected wait, warmup, active, and where wanted repeat and skip_first")
        folder = None if self.output_trace_dir is None else os.fspath(self.output_trace_dir)
        return engine_options(self, activities=activities, output_trace_dir=folder, **schedule)


def _known(name, known):
    if name not in known:
        raise ValueError(f"the activity {name!r} cannot be profiled; expected one of {', '.join(known)}")
    return name


def _torch_activity(torch, name):
    """torch's own of an activity. The CPU and CUDA can always be asked for; of the others those that are there."""
    there = [kind for kind in ProfilerActivity.__args__ if kind in ("cpu", "cuda") or getattr(torch, kind, None) is not None
             and getattr(torch, kind).is_available()]
    return getattr(torch.profiler.ProfilerActivity, _known(name, there).upper())


class Average:
    """An operator or span of key_averages(), with torch's names: times in microseconds."""

    def __init__(self, entry):
        self.entry = entry
        self.key, self.kind, self.count = entry["name"], entry["kind"], entry["count"]
        self.self_cpu_time_total, self.cpu_time_total = entry["self_cpu_us"], entry["cpu_us"]
        self.device_time_total, self.self_cpu_memory_usage = entry["device_us"], entry["self_cpu_memory"]
        self.flops, self.bytes, self.input_shapes = entry["flops"], entry["bytes"], entry["shapes"]

    def __repr__(self):
        return f"<{self.key}: {self.count} times, {self.cpu_time_total:.1f} us>"


# The engine's words for what torch's tables are sorted by.
_SORTED_BY = {"self_cpu_time_total": "self_cpu_us", "cpu_time_total": "cpu_us", "count": "count", "self_cpu_memory_usage": "self_cpu_memory",
              "flops": "flops", "device_time_total": "device_us", "self_device_time_total": "device_us", "cuda_time_total": "device_us", "bytes": "bytes"}


class Averages(list):
    """A list of Average, the largest own time first."""

    def __init__(self, entries):
        super().__init__(map(Average, entries))
        self._entries = entries

    def table(self, sort_by=None, row_limit=100):
        """A table for people. `sort_by`: as in torch, such as "self_cpu_time_total"; row_limit=-1: all rows."""
        return capi.accel_profile_table(self._entries, _SORTED_BY.get(sort_by, sort_by) or "self_cpu_us", max(row_limit, 0))

    def total_average(self):
        """The sum of all own times, in microseconds."""
        return sum(entry["self_cpu_us"] for entry in self._entries)


class Profile(methods.Profile):
    """The engine's profiler, with the methods of torch.profiler.profile."""

    def __init__(self, settings):
        self._settings, self._options, self._handle = settings, settings.to_engine(), None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.stop()
        else:  # the other ranks are not waited for
            self._handle = None

    def start(self):
        """Begins to record, as the schedule says."""
        own = weakref.ref(self)  # the engine has the function as long as this has the engine's profiler
        ready = self._settings.on_trace_ready
        self._handle = capi.accel_profile_begin(current(), self._options, None if ready is None else lambda _: ready(own()))

    def _begun(self):
        if self._handle is None:
            raise RuntimeError("the profiler has not begun: use it in `with`, or call start()")
        return self._handle

    @property
    def step_num(self):
        return 0 if self._handle is None else capi.accel_profile_step_number(self._handle)

    def schedule(self, step):
        """The action of a step. Without a schedule all are recorded."""
        if self._settings.schedule_option is None:
            return ProfilerAction.RECORD
        return ProfilerAction(capi.accel_profile_schedule(self._options, step))

    def key_averages(self, group_by_input_shape=False):
        """Operators and spans by name."""
        return Averages(capi.accel_profile_key_averages(self._begun(), int(group_by_input_shape)))

    def events(self):
        """The events of the trace that have a duration: dicts with name, cat, ts and dur (microseconds), tid and args."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            self.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


@contextlib.contextmanager
def profile(settings, rank, wait_for_everyone):
    """Accelerator.profile()."""
    profiler = settings.build()
    with profiler:
        yield profiler
    if settings.output_trace_dir is not None and not isinstance(profiler, Profile):  # the engine's has written it
        os.makedirs(settings.output_trace_dir, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(settings.output_trace_dir, f"profile_{rank}.json"))
        wait_for_everyone()


def merge_traces(paths, path):
    """Joins the traces of several ranks, or all of a folder, to one that Perfetto shows."""
    capi.accel_merge_traces([os.fspath(entry) for entry in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)], os.fspath(path))


def span(name):
    """`with span("evaluate"):` is shown in traces."""
    from ..engine.scopes import scope

    return scope(capi.accel_span_begin, name)
