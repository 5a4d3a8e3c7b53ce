# SPDX-License-Identifier: Apache-2.0
"""How a check says what it found: a figure as a line of JSON, what is wrong as its end, and that it cannot run here."""

import json
import os
import sys

DEVICE = os.environ.get("DEVICE", "cpu")
SHORT = DEVICE != "cuda"


def figure(name, /, **numbers):
    print(json.dumps({"figure": name, **numbers}), flush=True)


def require(right, what):
    """Ends the check as failed unless it is right."""
    if not right:
        sys.exit(f"Error: {what}")


def not_run(reason):
    print(reason)
    sys.exit(77)
