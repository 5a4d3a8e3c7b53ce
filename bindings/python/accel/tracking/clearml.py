# SPDX-License-Identifier: Apache-2.0
"""ClearML."""

import os
from operator import attrgetter

from .tracker import PackageTracker, logger

_SERIES = ("eval", "test", "train")


class ClearMLTracker(PackageTracker):
    """A task of ClearML: the one that the program has begun, else a new one, whose `settings` are those of Task.init(). The variables
    CLEARML_PROJECT and CLEARML_TASK name it."""

    name = "clearml"
    task = None

    def __init__(self, run_name=None, **kwargs):
        super().__init__(run_name, **kwargs)
        self.user_provided_run_name, self._initialized_externally = run_name, False

    tracker = property(attrgetter("task"))

    def start(self):
        from clearml import Task

        self.task = Task.current_task()
        self._initialized_externally = bool(self.task)
        if not self.task:
            names = {"project_name": os.environ.get("CLEARML_PROJECT", self.run_name),
                     "task_name": os.environ.get("CLEARML_TASK", self.run_name)}
            self.task = Task.init(**{**names, **self.init_kwargs})

    def store_init_configuration(self, values):
        return self.task.connect_configuration(values)

    def log(self, values, step=None, **kwargs):
        """Numbers; of names such as eval_loss the first part is the series. Without a step they are single values."""
        task_logger = self.task.get_logger()
        for name, value in values.items():
            if not isinstance(value, (int, float)):
                logger.warning_once(f"ClearML takes numbers only: {name} is left out, a {type(value).__name__}")
            elif step is None:
                task_logger.report_single_value(name=name, value=value, **kwargs)
            else:
                title, series = self._get_title_series(name)
                task_logger.report_scalar(title=title, series=series, value=value, iteration=step, **kwargs)

    def log_images(self, values, step=None, **kwargs):
        """Images by name: arrays or images of PIL."""
        for name, image in values.items():
            title, series = self._get_title_series(name)
            self.task.get_logger().report_image(title=title, series=series, iteration=step, image=image, **kwargs)

    def log_table(self, table_name, columns=None, data=None, dataframe=None, step=None, **kwargs):
        """A data frame, or rows; without `columns` the first row has their names."""
        if dataframe is None:
            if data is None:
                raise ValueError(f"log_table({table_name!r}) of ClearMLTracker: expected `data` or `dataframe`")
            dataframe = [columns, *data] if columns else data
        title, series = self._get_title_series(table_name)
        self.task.get_logger().report_table(title=title, series=series, table_plot=dataframe, iteration=step, **kwargs)

    def finish(self):
        """The task ends if it is this tracker's own."""
        if self.task and not self._initialized_externally:
            self.task.close()

    @staticmethod
    def _get_title_series(name):
        series, _, title = name.partition("_")
        return (title, series) if series in _SERIES and "_" in name else (name, "train")
