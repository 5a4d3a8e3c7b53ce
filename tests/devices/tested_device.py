# SPDX-License-Identifier: Apache-2.0
"""The kind of device that a test is for: "sim", "cuda"."""

import sys

import accel


def count(kind):
    """How many devices of the kind this process can use."""
    return accel.capi.accel_device_count(getattr(accel.capi, f"ACCEL_DEVICE_{kind.upper()}", accel.capi.ACCEL_DEVICE_OUT_OF_TREE))


def skip_without(kind):
    """Ends this process as a skipped test, with the reason, if no device of the kind can be used."""
    if reason := accel.capi.accel_unavailable_reason(kind):
        print(reason)
        sys.exit(77)
