# SPDX-License-Identifier: Apache-2.0
"""MLflow: by its own package where it is installed, else by the engine, which speaks with servers and writes MLflow's files itself."""

import json
import os
from operator import attrgetter

from ..state.environment import str_to_bool
from .engine import EngineTracker
from .tracker import GeneralTracker, logger


class MLflowTracker(GeneralTracker):
    """A run of MLflow by the package mlflow. The variables MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID, MLFLOW_TAGS and MLFLOW_NESTED_RUN go before
    the arguments."""

    name, requires_logging_directory = "mlflow", False
    active_run = None

    def __init__(self, experiment_name=None, logging_dir=None, run_id=None, tags=None, nested_run=False, run_name=None, description=None):
        super().__init__()
        given = os.environ.get
        self.experiment_name = given("MLFLOW_EXPERIMENT_NAME", experiment_name)
        self.run_id = given("MLFLOW_RUN_ID", run_id)
        tags = given("MLFLOW_TAGS", tags)
        self.tags = json.loads(tags) if isinstance(tags, str) else tags
        nested_run = given("MLFLOW_NESTED_RUN", nested_run)
        self.nested_run = str_to_bool(nested_run) == 1 if isinstance(nested_run, str) else nested_run
        self.logging_dir, self.run_name, self.description = logging_dir, run_name, description

    tracker = property(attrgetter("active_run"))

    def start(self):
        import mlflow

        known = mlflow.search_experiments(filter_string=f"name = '{self.experiment_name}'")
        if len(known) > 1:
            logger.warning(f"MLflow has {len(known)} experiments named {self.experiment_name!r}: the first is taken")
        experiment = known[0].experiment_id if known else mlflow.create_experiment(
            name=self.experiment_name, artifact_location=self.logging_dir, tags=self.tags)
        self.active_run = mlflow.start_run(run_id=self.run_id, experiment_id=experiment, run_name=self.run_name, nested=self.nested_run,
                                           tags=self.tags, description=self.description)

    def store_init_configuration(self, values):
        """Logs parameters, as many in a call as MLflow takes; values that are too long for it are left out."""
        import mlflow
        from mlflow.utils import validation

        longest, many = validation.MAX_PARAM_VAL_LENGTH, validation.MAX_PARAMS_TAGS_PER_BATCH
        kept = [(name, value) for name, value in values.items() if len(str(value)) <= longest]
        for name in values.keys() - dict(kept):
            logger.warning_once(f"MLflow takes parameters of {longest} characters: {name} is left out, which is longer")
        for first in range(0, len(kept), many):
            mlflow.log_params(dict(kept[first:first + many]))

    def log(self, values, step=None, **kwargs):
        """Numbers; `kwargs` are those of mlflow.log_metrics()."""
        import mlflow

        metrics = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        for name in values.keys() - metrics:
            logger.warning_once(f"MLflow takes numbers only: {name} is left out, a {type(values[name]).__name__}")
        mlflow.log_metrics(metrics, step=step, **kwargs)

    def log_figure(self, figure, artifact_file, **save_kwargs):
        """A figure of matplotlib or plotly."""
        import mlflow

        mlflow.log_figure(figure=figure, artifact_file=artifact_file, **save_kwargs)

    def log_artifacts(self, local_dir, artifact_path=None):
        """All files of a folder."""
        import mlflow

        mlflow.log_artifacts(local_dir=local_dir, artifact_path=artifact_path)

    def log_artifact(self, local_path, artifact_path=None):
        """A file."""
        import mlflow

        mlflow.log_artifact(local_path=local_path, artifact_path=artifact_path)

    def finish(self):
        import mlflow

        mlflow.end_run()


class EngineMLflowTracker(EngineTracker):
    """A run of MLflow by the engine: of the server at MLFLOW_TRACKING_URI, or of a folder. The settings are those of MLflowTracker, and
    tracking_uri."""

    name, requires_logging_directory = "mlflow", False

    def __init__(self, experiment_name, logging_dir=None, **settings):
        super().__init__(experiment_name)
        given = {"experiment_name": experiment_name, "logging_dir": None if logging_dir is None else os.fspath(logging_dir), **settings}
        self.init_kwargs = {name: value for name, value in given.items() if value is not None}
