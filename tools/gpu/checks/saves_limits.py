# SPDX-License-Identifier: Apache-2.0
"""How long an asynchronous save may hold the loop."""

from result import SHORT

LONGER = 1.10  # times the copy of the state
SLACK = 2.0 if SHORT else 0.02  # seconds; a rehearsal shares its processors


def held_too_long(held, copy, slack=SLACK):
    return held > LONGER * copy + slack
