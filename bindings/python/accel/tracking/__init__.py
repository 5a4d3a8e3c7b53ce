"""Trackers: where a run's numbers go. A tracker is a subclass of GeneralTracker; register_tracker_class() gives it a name."""

from ..compat.names import resolver
from .aim import AimTracker
from .clearml import ClearMLTracker
from .comet_ml import CometMLTracker
from .dvclive import DVCLiveTracker
from .engine import EngineTracker
from .mlflow import EngineMLflowTracker, MLflowTracker
from .registry import LOGGER_TYPE_TO_CLASS, CSVTracker, JSONLinesTracker, filter_trackers, get_available_trackers, register_tracker_class
from .runs import SwanLabTracker, TrackioTracker, WandBTracker
from .tensorboard import TensorBoardTracker
from .tracker import GeneralTracker, on_main_process

__all__ = ["AimTracker", "CSVTracker", "ClearMLTracker", "CometMLTracker", "DVCLiveTracker", "EngineMLflowTracker", "EngineTracker", "GeneralTracker",
           "JSONLinesTracker", "LOGGER_TYPE_TO_CLASS", "MLflowTracker", "SwanLabTracker", "TensorBoardTracker", "TrackioTracker", "WandBTracker",
           "filter_trackers", "get_available_trackers", "on_main_process", "register_tracker_class"]

__getattr__ = resolver(__name__)
