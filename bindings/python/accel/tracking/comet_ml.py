# SPDX-License-Identifier: Apache-2.0
"""Comet."""

from operator import attrgetter

from ..state.machine import compare_versions
from .tracker import PackageTracker


class CometMLTracker(PackageTracker):
    """An experiment of Comet; `settings` are those of comet_ml.start(), before version 3.41 those of Experiment()."""

    name = "comet_ml"
    writer = None

    tracker = property(attrgetter("writer"))

    def start(self):
        import comet_ml

        begin = comet_ml.start if compare_versions(comet_ml.__version__, ">=", "3.41.0") else comet_ml.Experiment
        self.writer = begin(project_name=self.run_name, **self.init_kwargs)

    def store_init_configuration(self, values):
        self.writer.log_parameters(values)

    def log(self, values, step=None, **kwargs):
        """Numbers and dicts of numbers are metrics, texts are other values; what is neither is left out."""
        if step is not None:
            self.writer.set_step(step)
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self.writer.log_metric(name, value, step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.log_other(name, value, **kwargs)
            elif isinstance(value, dict):
                self.writer.log_metrics(value, step=step, **kwargs)

    def finish(self):
        self.writer.end()
