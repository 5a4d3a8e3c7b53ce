# SPDX-License-Identifier: Apache-2.0
"""Loggers that know the ranks."""

import functools
import logging
import os

from .. import capi
from ..engine.messages import send as log_engine  # noqa: F401  (the engine's messages, as this module's name)
from ..state.job import current, is_made, is_main_process
from ..state.options import fill


class MultiProcessAdapter(logging.LoggerAdapter):
    """Messages begin with the rank. `main_process_only=False` logs on all ranks, `in_order=True` on one after the other, which is a
    collective and goes before `main_process_only`."""

    def process(self, msg, kwargs):
        """The message with the rank in front."""
        msg, kwargs = super().process(msg, kwargs)
        return f"[RANK {capi.accel_process_index(current())}] {msg}", kwargs

    def log(self, level, msg, *args, **kwargs):
        if not is_made():
            raise RuntimeError("make an Accelerator() or a PartialState() before logging: the logger asks for the rank")
        main_process_only, in_order = kwargs.pop("main_process_only", True), kwargs.pop("in_order", False)
        if not self.isEnabledFor(level):
            return
        state = current()
        msg, kwargs = self.process(msg, kwargs)
        kwargs.setdefault("stacklevel", 2)
        if in_order:
            for rank in range(capi.accel_num_processes(state)):
                if rank == capi.accel_process_index(state):
                    self.logger.log(level, msg, *args, **kwargs)
                capi.accel_wait_for_everyone(state)
        elif not main_process_only or is_main_process(state):
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


class SinkHandler(logging.Handler):
    """Hands what Python's loggers log to the engine's sinks."""

    def emit(self, record):
        if not is_made() or getattr(record, "accel_engine", False):  # the engine's own messages are there already
            return
        try:
            message = self.format(record).removeprefix(f"[RANK {capi.accel_process_index(current())}] ")
            logger = capi.accel_logger_create(current(), record.name, 10, None)
            capi.accel_logger_log(logger, record.levelno, message, capi.ACCEL_LOG_ALL_PROCESSES)
        except Exception:
            self.handleError(record)


_sinks: set = set()
_handler = SinkHandler()
_KINDS = {"stderr": capi.ACCEL_LOG_SINK_STDERR, "file": capi.ACCEL_LOG_SINK_FILE, "jsonl": capi.ACCEL_LOG_SINK_JSON_LINES}


def add_sink(path=None, kind=None, level=None, engine=None):
    """All loggers, Python's and the engine's, write there too: to stderr, to a file whose path may have {rank} in it, or to such a file with an
    object a line (kind="jsonl"). `level` is the lowest; with engine=False without the engine's own messages. A number for remove_sink()."""
    kind = kind or ("stderr" if path is None else "file")
    if kind not in _KINDS:
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(_KINDS)}")
    level = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    options = fill(capi.accel_log_sink_options_t(), {"path": None if path is None else os.fspath(path), "kind": _KINDS[kind], "level": level,
                                                     "engine": engine})
    sink = capi.accel_log_sink_add(current(), options)
    _sinks.add(sink)
    logging.getLogger().addHandler(_handler)
    return sink


def remove_sink(sink):
    """Ends a sink, after what it has is written."""
    capi.accel_log_sink_remove(sink)
    _sinks.discard(sink)
    if not _sinks:
        logging.getLogger().removeHandler(_handler)
