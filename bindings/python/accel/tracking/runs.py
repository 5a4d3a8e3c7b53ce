# SPDX-License-Identifier: Apache-2.0
"""Trackers whose package has runs with a configuration: Weights & Biases, Trackio, SwanLab. They run on all ranks."""

import importlib
from operator import attrgetter

from .tracker import PackageTracker


class _RunTracker(PackageTracker):
    """The package has the tracker's name; `settings` are those of its init()."""

    name = ""
    main_process_only = False
    run = None

    @property
    def _package(self):
        return importlib.import_module(self.name)

    tracker = property(attrgetter("run"))

    def start(self):
        self.run = self._package.init(project=self.run_name, **self.init_kwargs)

    def store_init_configuration(self, values):
        self._package.config.update(values, allow_val_change=True)

    def log(self, values, step=None, **kwargs):
        """All values that the package takes, which are more than numbers; `kwargs` are those of its log()."""
        self.run.log(values, step=step, **kwargs)

    def finish(self):
        self.run.finish()


class _ImageTracker(_RunTracker):
    def log_images(self, values, step=None, **kwargs):
        """Lists of images by name: arrays or images of PIL."""
        make = self._package.Image
        for name, images in values.items():
            self.log({name: [make(image) for image in images]}, step=step, **kwargs)


class WandBTracker(_ImageTracker):
    """Weights & Biases."""

    name = "wandb"

    def log_table(self, table_name, columns=None, data=None, dataframe=None, step=None, **kwargs):
        """A table of columns and rows, or of a data frame."""
        self.log({table_name: self._package.Table(columns=columns, data=data, dataframe=dataframe)}, step=step, **kwargs)


class TrackioTracker(_RunTracker):
    """Trackio; the name of the run is that of its project."""

    name = "trackio"


class SwanLabTracker(_ImageTracker):
    """SwanLab."""

    name = "swanlab"

    def start(self):
        super().start()
        self._package.config["FRAMEWORK"] = "Accelerate"  # what its pages show
