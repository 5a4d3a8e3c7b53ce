"""Workload call_overhead in Python: nanoseconds of one accel_tensor_numel(), the least of the rounds."""

import time

from accel import capi

CALLS = 200_000
ROUNDS = 10


def measure(tensor):
    call, calls = capi.accel_tensor_numel, range(CALLS)
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in calls:
            call(tensor)
        least = min(least, (time.perf_counter() - start) * 1e9 / CALLS)
    return least


print(measure(capi.accel_tensor_full([], 0.0, capi.ACCEL_DTYPE_FLOAT32, capi.accel_device_parse("cpu"))))
