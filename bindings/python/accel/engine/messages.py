# SPDX-License-Identifier: Apache-2.0
"""The engine's log messages in Python's logging: warnings and errors from the start, as the logger "accel"."""

import logging
import os

from .. import capi


def send(level="WARNING", logger=None):
    """Hands what the engine reports, from any of its threads, to a logger; "accel" if none is given. None as level ends it."""
    if level is None:
        capi.send_messages(None)
        return
    logger = logger or logging.getLogger("accel")
    capi.accel_set_log_level(getattr(capi, f"ACCEL_LOG_{level.upper()}"))
    capi.send_messages(lambda number, text: logger.log(number, text, extra={"accel_engine": True}))  # its levels have the numbers of Python's


def begin():
    """Unless ACCEL_LOG shows the messages on stderr, where most programs show Python's too."""
    target = os.environ.get("ACCEL_LOG", "off")
    if ":" in target or target.lower() == "off":
        send()
