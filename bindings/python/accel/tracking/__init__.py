# SPDX-License-Identifier: Apache-2.0
"""Trackers: where a run's numbers go. A tracker is a subclass of GeneralTracker; register_tracker_class() gives it a name."""

from ..compat.names import resolver

__getattr__ = resolver(__name__, "registry")
