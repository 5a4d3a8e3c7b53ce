"""Loggers that know the ranks."""

import atexit
import functools
import logging
import os

from . import capi
from .state import PartialState
from .names import resolver


class MultiProcessAdapter(logging.LoggerAdapter):
    """Messages begin with the rank. `main_process_only=False` logs on all ranks, `in_order=True` on one after the other, which is a
    collective and goes before `main_process_only`."""

    def process(self, msg, kwargs):
        """The message with the rank in front."""
        msg, kwargs = super().process(msg, kwargs)
        return f"[RANK {PartialState().process_index}] {msg}", kwargs

    def log(self, level, msg, *args, **kwargs):
        if not PartialState.is_made():
            raise RuntimeError("make an Accelerator() or a PartialState() before logging: the logger asks for the rank")
        main_process_only, in_order = kwargs.pop("main_process_only", True), kwargs.pop("in_order", False)
        if not self.isEnabledFor(level):
            return
        state = PartialState()
        msg, kwargs = self.process(msg, kwargs)
        kwargs.setdefault("stacklevel", 2)
        if in_order:
            for rank in range(state.num_processes):
                if rank == state.process_index:
                    self.logger.log(level, msg, *args, **kwargs)
                state.wait_for_everyone()
        elif not main_process_only or state.is_main_process:
            self.logger.log(level, msg, *args, **kwargs)

    @functools.lru_cache(None)  # noqa: B019  (adapters live as long as the program)
    def warning_once(self, *args, **kwargs):
        """Each text only once."""
        self.warning(*args, **kwargs)


def get_logger(name, log_level=None):
    """A logger; the level is `log_level`, else ACCELERATE_LOG_LEVEL."""
    logger = logging.getLogger(name)
    log_level = log_level or os.environ.get("ACCELERATE_LOG_LEVEL")
    if log_level is not None:
        logger.setLevel(log_level.upper())
        logger.root.setLevel(log_level.upper())
    return MultiProcessAdapter(logger, {})


def log_engine(level="WARNING", logger=None):
    """Hands what the engine reports, from any of its threads, to a logger; "accel" if none is given. None as level ends it."""
    if level is None:
        capi.accel_set_log_callback(None)
        return
    logger = logger or logging.getLogger("accel")
    capi.accel_set_log_level(getattr(capi, f"ACCEL_LOG_{level.upper()}"))
    capi.accel_set_log_callback(logger.log)  # the engine's levels have the numbers of Python's
    atexit.register(log_engine, None)


__getattr__ = resolver(__name__)
