# SPDX-License-Identifier: Apache-2.0
"""What a chrome trace says of a GPU: kernels, copies, and where the host waits."""

import gzip
import json

HOST_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


class Trace:
    def __init__(self, events):
        spans = [event for event in events if event.get("ph") == "X"]
        self.kernels = [event for event in spans if event.get("cat") == "kernel"]
        self.copies_to_device = [event for event in spans if event.get("cat") == "gpu_memcpy" and "HtoD" in event["name"]]
        self.calls = [event for event in spans if event.get("cat") in ("cuda_runtime", "cuda_driver")]

    @staticmethod
    def read(file):
        with (gzip.open if str(file).endswith(".gz") else open)(file, "rt") as text:
            events = json.load(text)
        return Trace(events["traceEvents"] if isinstance(events, dict) else events)

    def correlated_share(self):
        """The share of the kernels whose launch is in the trace."""
        launches = {event["args"].get("correlation") for event in self.calls if "args" in event}
        return sum(event.get("args", {}).get("correlation") in launches for event in self.kernels) / max(1, len(self.kernels))

    def busy_share(self):
        """The share of the time from the first kernel to the last in which one runs."""
        spans = sorted(map(_span, self.kernels))
        busy, end = 0, float("-inf")
        for begin, until in spans:
            busy += max(0, until - max(begin, end))
            end = max(end, until)
        return busy / (end - spans[0][0]) if spans else 0.0

    def pinned_copies(self):
        return sum("Pinned" in event["name"] for event in self.copies_to_device)

    def copies_beside_kernels(self):
        """The copies to the device during which a kernel of another stream runs."""
        return sum(any(_overlap(copy, kernel) and _stream(copy) != _stream(kernel) for kernel in self.kernels) for copy in self.copies_to_device)

    def host_waits(self):
        """(how many, milliseconds in them)"""
        waits = [event for event in self.calls if event["name"] in HOST_WAITS]
        return len(waits), sum(event.get("dur", 0) for event in waits) / 1e3

    def facts(self, steps):
        waits, milliseconds = self.host_waits()
        return {"kernels": len(self.kernels), "streams": len({_stream(event) for event in self.kernels}), "correlated_share": self.correlated_share(),
                "busy_share": self.busy_share(), "copies_to_device": len(self.copies_to_device), "pinned_copies": self.pinned_copies(),
                "copies_beside_kernels": self.copies_beside_kernels(), "host_waits_a_step": waits / steps, "waited_ms_a_step": milliseconds / steps}


def _span(event):
    return event["ts"], event["ts"] + event.get("dur", 0)


def _overlap(one, other):
    return _span(one)[0] < _span(other)[1] and _span(other)[0] < _span(one)[1]


def _stream(event):
    return event.get("args", {}).get("stream")
