# SPDX-License-Identifier: Apache-2.0
"""Monitoring of an Accelerator's training: trackers, profiles and reports."""

import os
import warnings
from typing import Any

from .. import capi
from ..generated import methods
from ..state.job import current, is_main_process
from ..state.process import View
from .engine import EngineRun, EngineTracker, alone_in
from .profiling import ProfileKwargs, profile
from .registry import LOGGER_TYPE_TO_CLASS, filter_trackers
from .tracker import GeneralTracker


class Observed(methods.Observed, View):
    """The part of Accelerator that is for whoever looks at the run."""

    project_configuration: Any
    profile_handler: Any
    log_with: list
    trackers: list

    def _choose_trackers(self, log_with):
        if log_with is None and os.environ.get("ACCELERATE_LOG_WITH"):
            log_with = os.environ["ACCELERATE_LOG_WITH"].split(",")
        if self.project_configuration.logging_dir is None:
            self.project_configuration.logging_dir = os.environ.get("ACCELERATE_LOGGING_DIR")
        chosen = filter_trackers(log_with, self.project_configuration.logging_dir)
        if log_with and not chosen:
            warnings.warn(f"log_with={log_with!r}: none of these trackers can be used here; their packages are not installed", stacklevel=4)
        self.log_with, self.trackers = chosen, []

    def init_trackers(self, project_name, config=None, init_kwargs=None):
        """Starts the trackers of log_with for a project. `config`: what the run is started with; `init_kwargs`: settings by tracker."""
        self.trackers = _start(self.log_with, project_name, self.project_configuration.logging_dir, config, init_kwargs, self._current())

    def start_tracker(self, name, project_name, logging_dir):
        """A tracker that runs beside those of log_with; end_training() finishes it, too."""
        started, = _start([name], project_name, logging_dir, None, None, alone_in(self._current()))
        self.trackers.append(started)
        return started

    def get_tracker(self, name, unwrap=False):
        """The running tracker of a name, or with `unwrap` what it writes to."""
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if self.trackers:
            raise ValueError(f"no tracker {name!r}; there are {', '.join(tracker.name for tracker in self.trackers)}")
        return GeneralTracker(_blank=True)

    def log(self, values: dict, step: "int | None" = None, log_kwargs: "dict | None" = None) -> None:
        """Values of a step, to every tracker; each takes the kinds that it knows. When one fails the others still have them."""
        _log(self.trackers, values, step, log_kwargs)

    def end_training(self) -> None:
        """Finishes the trackers, waits for all ranks, and leaves the group."""
        try:
            _finish(self.trackers)
        finally:
            capi.accel_end_training(self._current())

    def profile(self, profile_handler: "ProfileKwargs | None" = None) -> Any:
        """`with accelerator.profile() as profiler:` records what runs inside: with the handler that is given, else that of kwargs_handlers, else
        everything. The profiler is torch.profiler.profile, or the engine's with the same methods where the program does not use torch."""
        return profile(profile_handler or self.profile_handler or ProfileKwargs(), self.process_index, self.wait_for_everyone)


def _start(chosen, project_name, logging_dir, config, init_kwargs, state):
    """The trackers of a project, running. Names and classes become trackers, instances stay."""
    trackers = [_made(entry, project_name, logging_dir, init_kwargs or {}) for entry in chosen]
    of_engine = [tracker for tracker in trackers if isinstance(tracker, EngineTracker)]
    if of_engine and is_main_process(current()):
        run = EngineRun(of_engine, config, state)
        trackers = [tracker for tracker in trackers if tracker not in of_engine or run.has(tracker)]
    own = [tracker for tracker in trackers if not isinstance(tracker, EngineTracker)]
    for tracker in own:
        tracker.start()
    for tracker in own if config is not None else ():
        tracker.store_init_configuration(config)
    return trackers


def _made(entry, project_name, logging_dir, init_kwargs):
    if isinstance(entry, GeneralTracker):
        return entry
    kind = entry if isinstance(entry, type) else LOGGER_TYPE_TO_CLASS[str(entry)]
    place = (logging_dir,) if kind.requires_logging_directory else ()
    return kind(project_name, *place, **init_kwargs.get(kind.name, {}))


def _log(trackers, values, step, log_kwargs):
    """To every tracker, also when one fails; then the first failure is raised."""
    log_kwargs, runs = log_kwargs or {}, []

    def log_to(tracker):
        kwargs = log_kwargs.get(tracker.name, {})
        run = getattr(tracker, "_run", None) if isinstance(tracker, EngineTracker) and not kwargs else None
        if run is None or not log_kwargs.keys().isdisjoint(run.names):
            tracker.log(values, step=step, **kwargs)
        elif run not in runs:  # all of its trackers have the values
            runs.append(run)
            run.log(values, step)

    _each(trackers, log_to)


def _finish(trackers):
    """Ends every tracker, also when one fails; then the first failure is raised."""
    _each(trackers, lambda tracker: tracker.finish())


def _each(trackers, function):
    failures = []
    for tracker in trackers:
        try:
            function(tracker)
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
