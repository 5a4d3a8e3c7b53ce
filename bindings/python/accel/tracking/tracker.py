# SPDX-License-Identifier: Apache-2.0
"""The interface of a tracker."""

import functools
import logging
import types

from ..state.job import is_main_process, joined
from .logging import MultiProcessAdapter

logger = MultiProcessAdapter(logging.getLogger("accel.tracking"), {})


def on_main_process(function):
    """A tracker's method that runs on the main process only, if the tracker says `main_process_only`. There need be no state before it is
    called."""

    @functools.wraps(function)
    def run(self, *args, **kwargs):
        if getattr(self, "main_process_only", False) and not is_main_process(joined()):
            return None
        return function(self, *args, **kwargs)

    return run


class GeneralTracker:
    """A tracker. Subclasses have `name`, `requires_logging_directory`, `tracker` (what it writes to), and the methods below."""

    main_process_only = True

    def __init_subclass__(cls, **kwargs):
        """The methods of the package's own trackers run on the main process only; a program writes on_main_process before those of its classes."""
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(f"{__package__}."):
            for name, method in vars(cls).copy().items():
                if isinstance(method, types.FunctionType) and not name.startswith("_"):
                    setattr(cls, name, on_main_process(method))

    def __init__(self, _blank=False):
        if not _blank:
            missing = [name for name in ("name", "requires_logging_directory", "tracker") if name not in dir(self)]
            if missing:
                raise NotImplementedError(f"{type(self).__name__} needs: {', '.join(missing)}")

    def start(self):
        """Called once, before the others, when there is a state."""

    def store_init_configuration(self, values):
        """The settings of the run."""

    def log(self, values, step=None, **kwargs):
        """Numbers of a step."""

    def finish(self):
        """The end of the run."""


class PackageTracker(GeneralTracker):
    """A tracker that stands on a package, whose settings are the tracker's. Nothing of the package is touched before start()."""

    requires_logging_directory = False
    tracker = None

    def __init__(self, run_name, **kwargs):
        super().__init__()
        self.run_name, self.init_kwargs = run_name, kwargs
