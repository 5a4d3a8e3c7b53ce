"""Trackers: where a run's numbers go. A tracker is a subclass of GeneralTracker; register_tracker_class() gives it a name."""

import functools
import json
import logging
import os
import warnings

from .names import resolver
from .state import PartialState
from .trees import listify

LOGGER_TYPE_TO_CLASS: dict = {}
# Names of the reference whose trackers stand on packages that are not wrapped here.
_KNOWN = ("aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "trackio", "wandb")


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
            missing = [name for name in ("name", "requires_logging_directory", "tracker") if name not in dir(self)]
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
    """`log_with=cls.name` means this class from here on. A decorator too."""
    if not isinstance(cls, type) or not issubclass(cls, GeneralTracker):
        raise ValueError(f"{cls!r} is no subclass of GeneralTracker")
    lacking = [name for name in ("name", "requires_logging_directory") if not hasattr(cls, name)]
    if lacking:
        raise ValueError(f"{cls.__name__} needs: {', '.join(lacking)}")
    if LOGGER_TYPE_TO_CLASS.get(cls.name, cls) is not cls:
        warnings.warn(f"{cls.__name__} replaces {LOGGER_TYPE_TO_CLASS[cls.name].__name__} as the tracker {cls.name!r}", stacklevel=2)
    LOGGER_TYPE_TO_CLASS[cls.name] = cls
    return cls


@register_tracker_class
class TensorBoardTracker(GeneralTracker):
    """Writes files that TensorBoard shows, into logging_dir/run_name. Needs the packages torch and tensorboard. `settings` are those of
    torch.utils.tensorboard.SummaryWriter."""

    name, requires_logging_directory = "tensorboard", True

    def __init__(self, run_name, logging_dir, **settings):
        super().__init__()
        self.run_name, self.logging_dir, self._settings = run_name, os.path.join(logging_dir, run_name), settings

    @on_main_process
    def start(self):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(self.logging_dir, **self._settings)

    @property
    def tracker(self):
        return self.writer

    @on_main_process
    def store_init_configuration(self, values):
        """As hyperparameters, and as JSON in the folder of the run."""
        self.writer.add_hparams(values, metric_dict={})
        self.writer.flush()
        with open(os.path.join(self.logging_dir, "hparams.json"), "w", encoding="utf-8") as file:
            json.dump(values, file)

    @on_main_process
    def log(self, values, step=None, **kwargs):
        """Numbers, texts, and dicts of numbers that are shown in one plot."""
        for name, value in listify(values).items():
            kind = "scalar" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "scalars"
            getattr(self.writer, f"add_{kind}")(name, value, global_step=step, **kwargs)
        self.writer.flush()

    @on_main_process
    def log_images(self, values, step=None, **kwargs):
        """Batches of images."""
        for name, images in values.items():
            self.writer.add_images(name, images, global_step=step, **kwargs)

    @on_main_process
    def finish(self):
        self.writer.close()


def get_available_trackers():
    """The names that log_with takes: those of the classes that were registered."""
    return list(LOGGER_TYPE_TO_CLASS)


def filter_trackers(log_with, logging_dir=None):
    """Names, classes and instances as a list; a known name without a tracker here is left out with a message."""
    chosen = []
    for entry in [] if log_with is None else log_with if isinstance(log_with, (list, tuple)) else [log_with]:
        name = str(entry)
        if isinstance(entry, GeneralTracker) or isinstance(entry, type) and issubclass(entry, GeneralTracker):
            chosen.append(entry)
        elif name == "all":
            chosen += list(LOGGER_TYPE_TO_CLASS.values())
        elif name in LOGGER_TYPE_TO_CLASS:
            chosen.append(LOGGER_TYPE_TO_CLASS[name])
        elif name in _KNOWN:
            logging.getLogger(__name__).warning("no tracker %r here: subclass GeneralTracker and register_tracker_class() it", name)
        else:
            raise ValueError(f"log_with={name!r}: expected a GeneralTracker, or one of {', '.join([*LOGGER_TYPE_TO_CLASS, *_KNOWN])}")
    for entry in chosen:
        if entry.requires_logging_directory and logging_dir is None:
            raise ValueError(f"Logging with `{entry.name}` requires a `logging_dir`: give the Accelerator project_dir")
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


__getattr__ = resolver(__name__)
