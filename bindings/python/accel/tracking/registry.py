# SPDX-License-Identifier: Apache-2.0
"""The trackers that there are, by name."""

import importlib.util
import warnings

from .. import capi
from ..generated.enums import LoggerType
from .aim import AimTracker
from .clearml import ClearMLTracker
from .comet_ml import CometMLTracker
from .dvclive import DVCLiveTracker
from .engine import EngineTracker
from .mlflow import EngineMLflowTracker, MLflowTracker
from .runs import SwanLabTracker, TrackioTracker, WandBTracker
from .tensorboard import TensorBoardTracker
from .tracker import GeneralTracker, logger, on_main_process  # noqa: F401  (the names of accel.tracking)

LOGGER_TYPE_TO_CLASS: dict = {kind.name: kind for kind in (
    AimTracker, CometMLTracker, EngineMLflowTracker if importlib.util.find_spec("mlflow") is None else MLflowTracker, TensorBoardTracker,
    WandBTracker, ClearMLTracker, DVCLiveTracker, SwanLabTracker, TrackioTracker)}
for _name in capi.accel_available_trackers():  # what the engine has beside these needs nothing of Python's own
    LOGGER_TYPE_TO_CLASS.setdefault(_name, type(f"EngineTracker_{_name}", (EngineTracker,), {"name": _name}))
JSONLinesTracker, CSVTracker = LOGGER_TYPE_TO_CLASS["jsonl"], LOGGER_TYPE_TO_CLASS["csv"]


def register_tracker_class(tracker_class):
    """`log_with=tracker_class.name` means this class from here on. A decorator too."""
    if not isinstance(tracker_class, type) or not issubclass(tracker_class, GeneralTracker):
        raise ValueError(f"{tracker_class!r} is not a subclass of GeneralTracker")
    lacking = [name for name in ("name", "requires_logging_directory") if getattr(tracker_class, name, None) in (None, "")]
    if lacking:
        raise ValueError(f"{tracker_class.__name__} needs: {', '.join(lacking)}")
    if LOGGER_TYPE_TO_CLASS.get(tracker_class.name, tracker_class) is not tracker_class:
        warnings.warn(f"{tracker_class.__name__} replaces {LOGGER_TYPE_TO_CLASS[tracker_class.name].__name__} as the tracker {tracker_class.name!r}", stacklevel=2)
    LOGGER_TYPE_TO_CLASS[tracker_class.name] = tracker_class
    return tracker_class


def get_available_trackers():
    """The built-in trackers that can be used here: those of the engine, and those whose package is installed."""
    kinds = [kind for kind in LoggerType if kind != LoggerType.ALL and _is_available(kind)]
    return kinds + [name for name in capi.accel_available_trackers() if name not in LoggerType]


def _is_available(kind):
    if issubclass(LOGGER_TYPE_TO_CLASS[kind.value], EngineTracker):
        return kind.value in capi.accel_available_trackers()
    return importlib.util.find_spec(kind.value) is not None


def filter_trackers(log_with, logging_dir=None):
    """The trackers of log_with, once each: instances and classes as they are, others as their names. Built-in trackers that cannot be used here
    are left out, with a message for debugging; of "all" also those that need a logging_dir when there is none."""
    given = [] if log_with is None else log_with if isinstance(log_with, (list, tuple)) else [log_with]
    chosen = []
    for entry in given:
        if not _is_tracker(entry) and str(entry) not in LoggerType and str(entry) not in LOGGER_TYPE_TO_CLASS:
            raise ValueError(f"log_with={str(entry)!r}: expected a GeneralTracker, or one of "
                             f"{', '.join(dict.fromkeys([*LoggerType.list(), *LOGGER_TYPE_TO_CLASS]))}")
    if any(not _is_tracker(entry) and str(entry) == "all" for entry in given):
        given = [entry for entry in given if _is_tracker(entry)] + [kind for kind in get_available_trackers() if _has_folder(kind, logging_dir)]
    for entry in given:
        if _is_tracker(entry):
            _check_folder(entry, logging_dir)
        elif str(entry) in LoggerType:
            entry = LoggerType(str(entry))
            if not _is_available(entry):
                logger.logger.debug("the tracker %s is left out: its package is not installed", entry)
                continue
            _check_folder(LOGGER_TYPE_TO_CLASS[entry.value], logging_dir)
        else:
            _check_folder(LOGGER_TYPE_TO_CLASS[entry], logging_dir)
        if _is_tracker(entry) or entry not in chosen:
            chosen.append(entry)
    return chosen


def _is_tracker(entry):
    return isinstance(entry, GeneralTracker) or isinstance(entry, type) and issubclass(entry, GeneralTracker)


def _has_folder(kind, logging_dir):
    found = logging_dir is not None or not LOGGER_TYPE_TO_CLASS[str(kind)].requires_logging_directory
    if not found:
        logger.logger.warning("log_with='all' leaves out %s: it requires a logging_dir; give the Accelerator project_dir", kind)
    return found


def _check_folder(tracker, logging_dir):
    """An instance has its own."""
    if tracker.requires_logging_directory and logging_dir is None and isinstance(tracker, type):
        raise ValueError(f"Logging with `{tracker.name}` requires a `logging_dir`: give the Accelerator project_dir")
