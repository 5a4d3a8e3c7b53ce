# SPDX-License-Identifier: Apache-2.0
"""Trackers of the engine. A thread of it writes what they are given; those of a program run together, as one set of the state."""

import os
import weakref
from pathlib import Path

from .. import capi
from ..state.job import current, is_made
from ..state.options import fill
from .engine_values import configuration, images, loggable
from .tracker import GeneralTracker

# Settings of a tracker that hold for all of the run: those of accel_tracking_options_t.
OF_THE_RUN = ("resume", "flush_interval_ms", "queue_bytes", "step_report_interval")
UNNAMED = "run"  # what a run is called in the engine whose name is empty
_CHANNELS_FIRST = {"NCHW": True, "NHWC": False, "CHW": True, "HWC": False, "HW": False}


class EngineTracker(GeneralTracker):
    """A tracker of the engine, whose files are in logging_dir/run_name. `settings` are its own (docs/observability.md), or those of the
    whole run: resume, flush_interval_ms, queue_bytes, step_report_interval."""

    name = ""
    requires_logging_directory = True

    def __init__(self, run_name, logging_dir=None, **settings):
        super().__init__()
        self.run_name, self.logging_dir_param, self.init_kwargs = run_name, logging_dir, settings
        self._run = None

    def _settings(self):
        """The settings that the engine knows."""
        return self.init_kwargs

    def _running(self):
        """The run, which ends with the state at the latest."""
        if self._run is None or not self._run.is_open:
            raise RuntimeError(f"the tracker {self.name!r} does not run: call start(), or Accelerator.init_trackers(), first")
        return self._run

    @property
    def location(self):
        """The file, folder or address that it writes to; empty where it does not run."""
        return "" if self._run is None or not self._run.is_open else capi.accel_tracker_location(self._run.handle_of(self))

    @property
    def tracker(self):
        return self.location

    def start(self):
        EngineRun([self], None)

    def store_init_configuration(self, values):
        """The trackers of the run begin again, with this configuration."""
        self._running().again(values)

    def log(self, values, step=None, **kwargs):
        """Numbers, texts, tensors (of several elements: a histogram), and maps of them, whose names are joined with "/"."""
        _refuse(self, kwargs)
        capi.accel_tracker_log(self._running().handle_of(self), loggable(values), _step(step))

    def log_images(self, values, step=None, dataformats="NCHW", **kwargs):
        """Images by name: arrays or tensors, of one or of several, or lists of them. `dataformats` says which dimension is which. They go to all
        trackers of the engine, like figures, tables and files."""
        _refuse(self, kwargs)
        if dataformats not in _CHANNELS_FIRST:
            raise ValueError(f"dataformats={dataformats!r}: expected one of {', '.join(_CHANNELS_FIRST)}")
        channels_first = _CHANNELS_FIRST[dataformats]
        capi.accel_log_images(self._running().state, images(values, channels_first), int(channels_first), _step(step))

    def log_table(self, table_name, columns=None, data=None, dataframe=None, step=None):
        """A table of columns and rows, or of a data frame; without `columns` the first row has their names."""
        if dataframe is not None:
            columns, data = list(dataframe.columns), dataframe.values.tolist()
        if data is None:
            raise ValueError(f"log_table({table_name!r}): expected `data` or `dataframe`")
        columns, rows = (data[0], data[1:]) if columns is None else (columns, data)
        rows = [["" if item is None else configuration(item) for item in row] for row in rows]
        capi.accel_log_table(self._running().state, table_name, [str(column) for column in columns], rows, _step(step))

    def log_figure(self, figure, artifact_file, step=None, **save_kwargs):
        """A figure of matplotlib, whose savefig() gets `save_kwargs`; or the bytes, or the path, of a PNG, JPEG, SVG or HTML file."""
        capi.accel_log_figure(self._running().state, artifact_file, encoded(figure, save_kwargs), _step(step))

    def log_artifact(self, local_path, artifact_path=None):
        """A file; it must stay until flush() or finish()."""
        name = None if artifact_path is None else f"{artifact_path}/{os.path.basename(local_path)}"
        capi.accel_log_artifact(self._running().state, os.fspath(local_path), name)

    def log_artifacts(self, local_dir, artifact_path=None):
        """All files of a folder."""
        capi.accel_log_artifact(self._running().state, os.fspath(local_dir), artifact_path)

    def flush(self):
        """Waits until all is written."""
        capi.accel_flush_trackers(self._running().state)

    def finish(self):
        """The end of this tracker; the last one of a run ends the run."""
        if self._run is not None:
            self._run.leave(self)


def _state_of_main(state):
    """A state in which this process is the main one, whose trackers the engine runs: under Megatron-LM's settings that is another rank than 0."""
    return state if capi.accel_is_main_process(state) else alone_in(state)


def alone_in(state):
    """A state of this rank by itself."""
    return capi.accel_group_create(state, [capi.accel_process_index(state)])


class EngineRun:
    """The trackers of the engine that run together in a state. They hold it, and not the other way round: with the last of them, or of what else
    has the state, the run ends."""

    def __init__(self, trackers, config, state=None):
        self.state, self._left = _state_of_main(current() if state is None else state), set()
        places = {(tracker.run_name, None if tracker.logging_dir_param is None else os.fspath(tracker.logging_dir_param)) for tracker in trackers
                  if tracker.requires_logging_directory}
        if len(places) > 1:
            raise ValueError(f"the trackers {', '.join(tracker.name for tracker in trackers)} have different runs or folders: "
                             f"{', '.join(f'{folder}/{run}' for run, folder in sorted(places))}; those of the engine share one")
        run_name, folder = next(iter(places), (trackers[0].run_name, trackers[0].logging_dir_param))
        settings = {tracker.name: dict(tracker._settings()) for tracker in trackers}
        of_run = {name: own.pop(name) for own in settings.values() for name in OF_THE_RUN if name in own}
        options = fill(capi.accel_tracking_options_t(), {
            "log_with": ",".join(settings), "logging_dir": None if folder is None else os.fspath(folder), **of_run})
        capi.accel_init_trackers(self.state, str(run_name) or UNNAMED, configuration(config), settings, options)
        self._handles, self._has_ended = {}, False
        self.names = capi.accel_trackers(self.state)  # without those whose service does not answer, of which the log has a warning
        self._trackers = weakref.WeakSet(tracker for tracker in trackers if tracker.name in self.names)
        for tracker in self._trackers:
            tracker._run = self

    @property
    def is_open(self):
        return not self._has_ended and is_made()

    def has(self, tracker):
        return tracker in self._trackers

    def handle_of(self, tracker):
        """The engine's own of a tracker."""
        if tracker.name not in self._handles:
            self._handles[tracker.name] = capi.accel_get_tracker(self.state, tracker.name)
        return self._handles[tracker.name]

    def log(self, values, step):
        """To all of them."""
        capi.accel_log(self.state, loggable(values), _step(step), None)

    def leave(self, tracker):
        """A tracker ends; with the last one the run."""
        self._left.add(tracker.name)
        tracker._run = None
        if self._left.issuperset(self.names):
            self.finish()

    def again(self, config):
        """These trackers, begun again with a configuration."""
        trackers = sorted((tracker for tracker in self._trackers if tracker._run is self), key=lambda tracker: self.names.index(tracker.name))
        self.finish()
        EngineRun(trackers, config, self.state)

    def finish(self):
        self._handles, self._has_ended = {}, True
        if is_made():
            capi.accel_finish_trackers(self.state)


def _step(step):
    return capi.ACCEL_UNSET_INT64 if step is None else int(step)


def encoded(figure, save_kwargs):
    """A figure as the bytes of a file."""
    if hasattr(figure, "savefig"):
        import io

        file = io.BytesIO()
        figure.savefig(file, **{"format": "png", **save_kwargs})
        return file.getvalue()
    if hasattr(figure, "to_html"):  # of plotly
        return figure.to_html(**save_kwargs).encode()
    return bytes(figure) if isinstance(figure, (bytes, bytearray, memoryview)) else Path(figure).read_bytes()


def _refuse(tracker, kwargs):
    if kwargs:
        raise TypeError(f"the tracker {tracker.name!r} has no settings {', '.join(kwargs)} for what is logged")
