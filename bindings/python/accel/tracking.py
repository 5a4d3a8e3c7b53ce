"""Trackers: where a run's numbers go. A tracker is a subclass of GeneralTracker; register_tracker_class() gives it a name."""

import functools
import logging

from . import missing
from .state import PartialState

_classes: dict = {}
# Names of the reference whose trackers stand on packages that are not wrapped here.
_KNOWN = ("aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb")


def on_main_process(function):
    """A tracker's method that runs on the main process only, unless the tracker says otherwise."""

    @functools.wraps(function)
    def run(self, *args, **kwargs):
        if not getattr(self, "main_process_only", True) or PartialState().is_main_process:
            return function(self, *args, **kwargs)
        return None

    return run


class GeneralTracker:
    """A tracker. Subclasses have `name`, `requires_logging_directory`, `tracker` (what it writes to), and the methods below."""

    main_process_only = True

    def __init__(self, _blank=False):
        if not _blank:
            missing = [name for name in ("name", "requires_logging_directory", "tracker") if not hasattr(self, name)]
            if missing:
                raise NotImplementedError(f"{type(self).__name__} needs: {', '.join(missing)}")

    def start(self):
        """Called once, before the others."""

    def store_init_configuration(self, values):
        """The settings of the run."""

    def log(self, values, step=None, **kwargs):
        """Numbers of a step."""

    def finish(self):
        """The end of the run."""


def register_tracker_class(cls):
    """`log_with=cls.name` means this class from here on."""
    _classes[cls.name] = cls
    return cls


def get_available_trackers():
    """The names that log_with takes: those of the classes that were registered."""
    return list(_classes)


def filter_trackers(log_with, logging_dir=None):
    """Names, classes and instances as a list; a known name without a tracker here is left out with a message."""
    chosen = []
    for entry in [] if log_with is None else log_with if isinstance(log_with, (list, tuple)) else [log_with]:
        name = str(entry)
        if isinstance(entry, GeneralTracker) or isinstance(entry, type) and issubclass(entry, GeneralTracker):
            chosen.append(entry)
        elif name == "all":
            chosen += list(_classes.values())
        elif name in _classes:
            chosen.append(_classes[name])
        elif name in _KNOWN:
            logging.getLogger(__name__).warning("no tracker %r here: subclass GeneralTracker and register_tracker_class() it", name)
        else:
            raise ValueError(f"log_with={name!r}: expected a GeneralTracker, or one of {', '.join([*_classes, *_KNOWN])}")
    for entry in chosen:
        if entry.requires_logging_directory and logging_dir is None:
            raise ValueError(f"the tracker {entry.name!r} needs a folder: give the Accelerator project_dir")
    return chosen


def start(trackers, project_name, logging_dir, config, init_kwargs):
    """The running trackers of a project."""
    running = []
    for entry in trackers:
        if isinstance(entry, type):
            settings = (init_kwargs or {}).get(entry.name, {})
            entry = entry(project_name, **({"logging_dir": logging_dir} if entry.requires_logging_directory else {}), **settings)
        entry.start()
        if config is not None:
            entry.store_init_configuration(config)
        running.append(entry)
    return running


def __getattr__(name):
    missing.check_name(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
