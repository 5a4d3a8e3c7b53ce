# SPDX-License-Identifier: Apache-2.0
"""DVCLive."""

from operator import attrgetter

from .tracker import PackageTracker, logger


class DVCLiveTracker(PackageTracker):
    """`live`, or a dvclive.Live() with these settings. The name of the run is not used."""

    name = "dvclive"

    def __init__(self, run_name=None, live=None, **kwargs):
        super().__init__(run_name, **kwargs)
        self.live = live

    tracker = property(attrgetter("live"))

    def start(self):
        from dvclive import Live

        if self.live is None:
            self.live = Live(**self.init_kwargs)

    def store_init_configuration(self, values):
        self.live.log_params(values)

    def log(self, values, step=None, **kwargs):
        """Logs the values that DVCLive takes for a metric. The next step is the one after this."""
        from dvclive.plots import Metric

        if step is not None:
            self.live.step = step
        for name, value in values.items():
            if Metric.could_log(value):
                self.live.log_metric(name, value, **kwargs)
            else:
                logger.warning_once(f"DVCLive takes numbers and texts only: {name} is left out, a {type(value).__name__}")
        self.live.next_step()

    def finish(self):
        self.live.end()
