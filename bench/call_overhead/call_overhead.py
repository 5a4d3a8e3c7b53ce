# SPDX-License-Identifier: Apache-2.0
"""Workload call_overhead in Python: nanoseconds of one accel_tensor_numel(), or with the argument "operator" of one accel.ops.add()
of four numbers; the least of the rounds."""

import sys
import time

from accel import capi

CALLS = 200_000
ROUNDS = 10


def measure(call, arguments, count):
    calls = range(count)
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in calls:
            call(*arguments)
        least = min(least, (time.perf_counter() - start) * 1e9 / count)
    return least


if sys.argv[1:] == ["operator"]:
    import accel

    ones = accel.ones(4)
    print(measure(accel.ops.add, (ones, ones), CALLS // 10))
else:
    scalar = capi.accel_tensor_full([], 0.0, capi.ACCEL_DTYPE_FLOAT32, capi.accel_device_parse("cpu"))
    print(measure(capi.accel_tensor_numel, (scalar,), CALLS))
