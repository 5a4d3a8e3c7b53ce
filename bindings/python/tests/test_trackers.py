# SPDX-License-Identifier: Apache-2.0
"""Trackers: the rules of the registry, several of them together, and those of packages, which are stand-ins here."""

import math
import os
import sys
import types

import pytest

import accel
import stand_ins
from accel import capi, tracking
from accel.tracking import registry


class Memory(accel.GeneralTracker):
    name, requires_logging_directory = "memory", False

    def __init__(self, *project, fails_in=(), **settings):
        self.lines, self.fails_in = [(project, settings)] if project or settings else [], fails_in
        super().__init__()

    @property
    def tracker(self):
        return self.lines

    def _add(self, what, *content):
        self.lines.append((what, *content))
        if what in self.fails_in:
            raise OSError(f"{what} failed")

    def start(self):
        self._add("start")

    def store_init_configuration(self, values):
        self._add("configuration", values)

    def log(self, values, step=None, **kwargs):
        self._add("log", values, step, kwargs)

    def finish(self):
        self._add("finish")


@pytest.fixture(autouse=True)
def registry_stays(monkeypatch):
    known = dict(registry.LOGGER_TYPE_TO_CLASS)
    yield
    registry.LOGGER_TYPE_TO_CLASS.clear()
    registry.LOGGER_TYPE_TO_CLASS.update(known)


def started(log_with, config=None, **init_kwargs):
    accelerator = accel.Accelerator(cpu=True, log_with=log_with)
    accelerator.init_trackers("project", config, init_kwargs or None)
    return accelerator


def test_the_registry():
    assert tracking.register_tracker_class(Memory) is Memory and tracking.LOGGER_TYPE_TO_CLASS["memory"] is Memory
    with pytest.warns(UserWarning, match="Other replaces Memory as the tracker 'memory'"):
        tracking.register_tracker_class(type("Other", (Memory,), {}))
    for wrong, text in ((dict, "not a subclass"), (Memory(), "not a subclass"), (type("Nameless", (accel.GeneralTracker,), {"requires_logging_directory": False}), "needs: name"),
                        (type("Empty", (Memory,), {"name": ""}), "needs: name"), (type("Flagless", (accel.GeneralTracker,), {"name": "x"}), "requires_logging_directory")):
        with pytest.raises(ValueError, match=text):
            tracking.register_tracker_class(wrong)


def test_incomplete_trackers():
    with pytest.raises(NotImplementedError, match="Incomplete needs: requires_logging_directory, tracker"):
        type("Incomplete", (accel.GeneralTracker,), {"name": "incomplete"})()
    blank = accel.GeneralTracker(_blank=True)
    assert blank.start() is blank.log({}) is blank.store_init_configuration({}) is blank.finish() is None


def test_what_log_with_names(monkeypatch, caplog):
    own = Memory()
    tracking.register_tracker_class(Memory)
    stand_ins.install(monkeypatch, "wandb")
    wandb = accel.LoggerType.WANDB
    assert tracking.filter_trackers(None) == [] and tracking.filter_trackers("memory") == ["memory"]
    assert tracking.filter_trackers([own, "wandb", wandb, Memory, "memory", "memory"]) == [own, wandb, Memory, "memory"]
    monkeypatch.setitem(sys.modules, "wandb", None)
    caplog.set_level("DEBUG", "accel.tracking")
    assert tracking.filter_trackers(("wandb", own)) == [own] and "wandb is left out: its package is not installed" in caplog.text
    with pytest.raises(ValueError, match="log_with='unknown': expected a GeneralTracker, or one of all, aim, .*csv, memory"):
        tracking.filter_trackers("unknown")
    with pytest.raises(ValueError, match="unknown"):
        tracking.filter_trackers(["all", "unknown"])
    needy = tracking.register_tracker_class(type("Needy", (Memory,), {"name": "needy", "requires_logging_directory": True}))
    for entry in ("needy", needy):
        with pytest.raises(ValueError, match="Logging with `needy` requires a `logging_dir`"):
            tracking.filter_trackers(entry)
    assert tracking.filter_trackers("needy", "here") == ["needy"] and len(tracking.filter_trackers(needy())) == 1


def test_all_that_are_available(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(capi, "accel_available_trackers", lambda: ["jsonl", "csv", "tensorboard"])
    for name in ("aim", "wandb", "mlflow", "comet_ml", "clearml", "dvclive", "swanlab", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)
    registry.LOGGER_TYPE_TO_CLASS["mlflow"] = tracking.EngineMLflowTracker
    assert tracking.get_available_trackers() == ["tensorboard", "jsonl", "csv"]
    monkeypatch.delitem(sys.modules, "wandb")
    stand_ins.install(monkeypatch, "wandb")
    own = Memory()
    assert tracking.filter_trackers([own, "all"], str(tmp_path)) == [own, "tensorboard", "wandb", "jsonl", "csv"]
    assert tracking.filter_trackers(accel.LoggerType.ALL) == ["wandb"] and "leaves out jsonl: it requires a logging_dir" in caplog.text


# Regression: a registered tracker got its folder by the name `logging_dir`, and not as its second argument.
def test_trackers_from_the_environment(monkeypatch, tmp_path):
    tracking.register_tracker_class(type("Needy", (Memory,), {"name": "needy", "requires_logging_directory": True}))
    tracking.register_tracker_class(Memory)
    monkeypatch.setenv("ACCELERATE_LOG_WITH", "memory,needy")
    monkeypatch.setenv("ACCELERATE_LOGGING_DIR", str(tmp_path))
    accelerator = started(None)
    assert [tracker.name for tracker in accelerator.trackers] == ["memory", "needy"] and accelerator.logging_dir == str(tmp_path)
    assert accelerator.trackers[1].lines[0] == (("project", str(tmp_path)), {})
    assert accel.Accelerator(cpu=True, log_with=[]).log_with == []


def test_none_is_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(UserWarning, match="log_with='wandb': none of these"):
        assert accel.Accelerator(cpu=True, log_with="wandb").log_with == []


def test_an_accelerator_tells_its_trackers():
    own, settings = Memory(), {"memory": {"color": "red"}}
    tracking.register_tracker_class(Memory)
    accelerator = accel.Accelerator(cpu=True, log_with=[own, "memory"])
    assert accelerator.get_tracker("memory").log({}) is None  # none runs yet
    accelerator.init_trackers("project", {"lr": 1}, settings)
    accelerator.log({"loss": 0.5}, step=3, log_kwargs={"memory": {"more": 1}})
    accelerator.log({"loss": 0.4})
    assert accelerator.get_tracker("memory", unwrap=True) is own.lines and len(accelerator.trackers) == 2
    with pytest.raises(ValueError, match="no tracker 'other'; there are memory, memory"):
        accelerator.get_tracker("other")
    accelerator.end_training()
    told = [("start",), ("configuration", {"lr": 1}), ("log", {"loss": 0.5}, 3, {"more": 1}), ("log", {"loss": 0.4}, None, {}), ("finish",)]
    assert own.lines == told and accelerator.trackers[1].lines == [(("project",), {"color": "red"}), *told]


# Regression: when a tracker of a program failed, those behind it lost the values, and the group was not left.
def test_when_one_fails_the_others_still_hear():
    failing, other = Memory(fails_in=("log", "finish")), Memory()
    accelerator = started([failing, other])
    with pytest.raises(OSError, match="log failed"):
        accelerator.log({"loss": 1.0}, step=1)
    with pytest.raises(OSError, match="finish failed"):
        accelerator.end_training()
    assert failing.lines == other.lines == [("start",), ("log", {"loss": 1.0}, 1, {}), ("finish",)]
    with pytest.raises(OSError, match="start failed"):
        started(Memory(fails_in=("start",)))


def test_on_which_ranks(ranks):
    """Trackers run on the main process, and on all where they say so; each is made everywhere."""
    for rank, out in enumerate(ranks("""
        import accel
        from accel.tracking import GeneralTracker, on_main_process

        class Prints(GeneralTracker):
            name, requires_logging_directory, tracker = "main", False, None

            @on_main_process
            def start(self):
                print(self.name, "starts")

            @on_main_process
            def log(self, values, step=None):
                print(self.name, values, step)

        class Everywhere(Prints):
            name, main_process_only = "everywhere", False

        accelerator = accel.Accelerator(cpu=True, log_with=[Prints(), Everywhere()])
        accelerator.init_trackers("project")
        accelerator.log({"loss": accelerator.process_index}, step=1)
        assert accelerator.get_tracker("main").name == "main"
        accelerator.end_training()
    """)):
        everywhere = f"everywhere starts\neverywhere {{'loss': {rank}}} 1\n".splitlines()
        main = "main starts\nmain {'loss': 0} 1".splitlines() if rank == 0 else []
        assert sorted(out.splitlines()) == sorted(everywhere + main)


class Single:
    """As numpy.float32: a number that is not a float."""

    def __float__(self):
        return 0.5


VALUES = {"tensor": accel.tensor(1.0), "single": Single(), "number": 0.5, "whole": 2, "yes": True, "text": "some", "none": None, "nan": math.nan,
          "both": {"a": 1, "b": 2.0}, "list": [1, 2]}


@pytest.mark.parametrize("name", ["wandb", "trackio", "swanlab"])
def test_packages_with_runs(monkeypatch, name):
    calls = stand_ins.install(monkeypatch, name)
    accelerator = started(name, {"lr": 1}, **{name: {"tags": ["a"]}})
    tracker = accelerator.get_tracker(name)
    assert not tracker.main_process_only and not tracker.requires_logging_directory
    accelerator.log(VALUES, step=3, log_kwargs={name: {"commit": True}})
    if name != "trackio":
        tracker.log_images({"picture": ["first", "second"]}, step=4)
    if name == "wandb":
        tracker.log_table("table", columns=["a"], data=[[1]], step=5)
    accelerator.end_training()
    assert repr(tracker.tracker) == f"<{name}.init()>"
    config = [("config[]", ("FRAMEWORK", "Accelerate"), {})] if name == "swanlab" else []
    told = [("init", (), {"project": "project", "tags": ["a"]}), *config, ("config.update", ({"lr": 1},), {"allow_val_change": True}),
            ("init().log", (VALUES,), {"step": 3, "commit": True})]
    assert [(path.removeprefix(f"{name}."), *rest) for path, *rest in calls[:len(told)]] == told
    assert [path.removeprefix(f"{name}.") for path, *_ in calls[len(told):]] == (
        ["Image", "Image", "init().log"] * (name != "trackio") + ["Table", "init().log"] * (name == "wandb") + ["init().finish"])


@pytest.mark.parametrize(("version", "begin"), [("3.58.8", "start"), ("3.40.9", "Experiment")])
def test_comet(monkeypatch, version, begin):
    calls = stand_ins.install(monkeypatch, "comet_ml")
    sys.modules["comet_ml"].__version__ = version
    accelerator = started("comet_ml", {"lr": 1}, comet_ml={"online": False})
    accelerator.log(VALUES, step=3)
    accelerator.log({"loss": 1.0})
    accelerator.end_training()
    own = f"comet_ml.{begin}()."
    assert calls[0] == (f"comet_ml.{begin}", (), {"project_name": "project", "online": False})
    assert [(path.removeprefix(own), args, kwargs) for path, args, kwargs in calls[1:]] == [
        ("log_parameters", ({"lr": 1},), {}), ("set_step", (3,), {}), ("log_metric", ("number", 0.5), {"step": 3}), ("log_metric", ("whole", 2), {"step": 3}),
        ("log_metric", ("yes", True), {"step": 3}), ("log_other", ("text", "some"), {}), ("log_metric", ("nan", VALUES["nan"]), {"step": 3}),
        ("log_metrics", ({"a": 1, "b": 2.0},), {"step": 3}), ("log_metric", ("loss", 1.0), {"step": None}), ("end", (), {})]


def test_aim(monkeypatch, tmp_path):
    calls = stand_ins.install(monkeypatch, "aim")
    with pytest.raises(ValueError, match="`aim` requires a `logging_dir`"):
        accel.Accelerator(cpu=True, log_with="aim")
    accelerator = accel.Accelerator(cpu=True, log_with="aim", project_dir=str(tmp_path))
    accelerator.init_trackers("project", {"lr": 1}, {"aim": {"experiment": "e"}})
    accelerator.log({"loss": 1.0, "text": "some"}, step=3, log_kwargs={"aim": {"context": {"subset": "train"}}})
    accelerator.get_tracker("aim").log_images({"plain": "image", "named": ("image", "caption")}, step=4,
                                              kwargs={"aim_image": {"quality": 90}, "track": {"context": {}}})
    accelerator.end_training()
    assert [(path.removeprefix("aim."), args if "track" not in path else args[:1] if isinstance(args[0], (str, float)) else (), kwargs) for path, args, kwargs in calls] == [
        ("Run", (), {"repo": str(tmp_path), "experiment": "e"}), ("Run().name=", ("project",), {}), ("Run()[]", ("hparams", {"lr": 1}), {}),
        ("Run().track", (1.0,), {"name": "loss", "step": 3, "context": {"subset": "train"}}),
        ("Run().track", ("some",), {"name": "text", "step": 3, "context": {"subset": "train"}}),
        ("Image", ("image",), {"caption": "", "quality": 90}), ("Run().track", (), {"name": "plain", "step": 4, "context": {}}),
        ("Image", ("image",), {"caption": "caption", "quality": 90}), ("Run().track", (), {"name": "named", "step": 4, "context": {}}),
        ("Run().close", (), {})]


@pytest.mark.parametrize("is_external", [False, True])
def test_clearml(monkeypatch, is_external, caplog):
    current = stand_ins.Recorder("clearml.Task.init()", calls := [], {}) if is_external else None
    calls = stand_ins.install(monkeypatch, "clearml", Task__current_task_call=lambda: current) if not is_external else calls
    if is_external:
        stand_ins.install(monkeypatch, "clearml", Task__current_task_call=lambda: current)
    monkeypatch.setenv("CLEARML_TASK", "named")
    accelerator = started("clearml", {"lr": 1}, clearml={"tags": ["a"]})
    accelerator.log({"loss": 1, "eval_loss": 2, "test_a_b": 3.5, "evaluation": 4, "text": "some"}, step=3)
    accelerator.log({"single": 1.5, "none": None})
    tracker = accelerator.get_tracker("clearml")
    tracker.log_images({"train_picture": "image"}, step=4)
    tracker.log_table("table", columns=["a", "b"], data=[[1, 2]], step=5)
    tracker.log_table("table", data=[["a"], [1]])
    with pytest.raises(ValueError, match="expected `data` or `dataframe`"):
        tracker.log_table("table")
    accelerator.end_training()
    begin = [] if is_external else [("clearml.Task.current_task", (), {}),
                                    ("clearml.Task.init", (), {"project_name": "project", "task_name": "named", "tags": ["a"]})]
    logger = "clearml.Task.init().get_logger()"
    scalar = [("loss", "train", 1), ("loss", "eval", 2), ("a_b", "test", 3.5), ("evaluation", "train", 4)]
    assert [call for call in calls if not call[0].endswith("get_logger")] == [
        *begin, ("clearml.Task.init().connect_configuration", ({"lr": 1},), {}),
        *((f"{logger}.report_scalar", (), {"title": title, "series": series, "value": value, "iteration": 3}) for title, series, value in scalar),
        (f"{logger}.report_single_value", (), {"name": "single", "value": 1.5}),
        (f"{logger}.report_image", (), {"title": "picture", "series": "train", "iteration": 4, "image": "image"}),
        (f"{logger}.report_table", (), {"title": "table", "series": "train", "table_plot": [["a", "b"], [1, 2]], "iteration": 5}),
        (f"{logger}.report_table", (), {"title": "table", "series": "train", "table_plot": [["a"], [1]], "iteration": None}),
        *([] if is_external else [("clearml.Task.init().close", (), {})])]


def test_dvclive(monkeypatch):
    calls = stand_ins.install(monkeypatch, "dvclive")
    plots = types.ModuleType("dvclive.plots")
    plots.Metric = types.SimpleNamespace(could_log=lambda value: isinstance(value, (int, float, str)))
    monkeypatch.setitem(sys.modules, "dvclive.plots", plots)
    accelerator = started("dvclive", {"lr": 1}, dvclive={"dir": "here"})
    accelerator.log({"loss": 1.0, "text": "some", "none": None}, step=3)
    accelerator.log({"loss": 2.0})
    accelerator.end_training()
    assert [(path.removeprefix("dvclive."), args, kwargs) for path, args, kwargs in calls] == [
        ("Live", (), {"dir": "here"}), ("Live().log_params", ({"lr": 1},), {}), ("Live().step=", (3,), {}), ("Live().log_metric", ("loss", 1.0), {}),
        ("Live().log_metric", ("text", "some"), {}), ("Live().next_step", (), {}), ("Live().log_metric", ("loss", 2.0), {}),
        ("Live().next_step", (), {}), ("Live().end", (), {})]
    own = object()
    assert tracking.DVCLiveTracker(live=own).tracker is own


def mlflow_stand_in(monkeypatch, experiments=()):
    calls = stand_ins.install(monkeypatch, "mlflow", search_experiments_call=lambda **_: list(experiments), create_experiment_call=lambda **_: "new")
    utils = types.ModuleType("mlflow.utils")
    utils.validation = types.SimpleNamespace(MAX_PARAM_VAL_LENGTH=10, MAX_PARAMS_TAGS_PER_BATCH=2)
    monkeypatch.setitem(sys.modules, "mlflow.utils", utils)
    registry.LOGGER_TYPE_TO_CLASS["mlflow"] = tracking.MLflowTracker
    return calls


def test_mlflow(monkeypatch):
    calls = mlflow_stand_in(monkeypatch)
    config = {"lr": 1, "long": "x" * 11, "b": 2, "c": 3}
    accelerator = started("mlflow", config, mlflow={"tags": {"a": "b"}, "run_name": "run"})
    assert list(config) == ["lr", "long", "b", "c"]
    accelerator.log({**VALUES, "text": "left out"}, step=3, log_kwargs={"mlflow": {"synchronous": True}})
    accelerator.log({"loss": 1.0})
    tracker = accelerator.get_tracker("mlflow")
    assert repr(accelerator.get_tracker("mlflow", unwrap=True)) == "<mlflow.start_run()>"
    tracker.log_figure("figure", "figure.png", save_kwargs={})
    tracker.log_artifact("file", artifact_path="there")
    tracker.log_artifacts("folder")
    accelerator.end_training()
    assert [(path.removeprefix("mlflow."), args, kwargs) for path, args, kwargs in calls] == [
        ("search_experiments", (), {"filter_string": "name = 'project'"}),
        ("create_experiment", (), {"name": "project", "artifact_location": None, "tags": {"a": "b"}}),
        ("start_run", (), {"run_id": None, "experiment_id": "new", "run_name": "run", "nested": False, "tags": {"a": "b"}, "description": None}),
        ("log_params", ({"lr": 1, "b": 2},), {}), ("log_params", ({"c": 3},), {}),
        ("log_metrics", ({"number": 0.5, "whole": 2, "yes": True, "nan": VALUES["nan"]},), {"step": 3, "synchronous": True}),
        ("log_metrics", ({"loss": 1.0},), {"step": None}), ("log_figure", (), {"figure": "figure", "artifact_file": "figure.png", "save_kwargs": {}}),
        ("log_artifact", (), {"local_path": "file", "artifact_path": "there"}), ("log_artifacts", (), {"local_dir": "folder", "artifact_path": None}),
        ("end_run", (), {})]


def test_mlflow_reads_its_environment(monkeypatch):
    experiment = types.SimpleNamespace(experiment_id="7")
    calls = mlflow_stand_in(monkeypatch, [experiment])
    for name, value in {"EXPERIMENT_NAME": "named", "RUN_ID": "abc", "TAGS": '{"a": "b"}', "NESTED_RUN": "on"}.items():
        monkeypatch.setenv(f"MLFLOW_{name}", value)
    started("mlflow")
    assert calls[0][2] == {"filter_string": "name = 'named'"} and calls[1] == ("mlflow.start_run", (), {
        "run_id": "abc", "experiment_id": "7", "run_name": None, "nested": True, "tags": {"a": "b"}, "description": None})
    monkeypatch.setenv("MLFLOW_NESTED_RUN", "false")
    assert tracking.MLflowTracker("x").nested_run is False
    with pytest.raises(ValueError, match="truth value"):
        monkeypatch.setenv("MLFLOW_NESTED_RUN", "perhaps")
        tracking.MLflowTracker("x")


def test_nothing_is_touched_before_the_start(tmp_path):
    accel.PartialState._reset_state()
    made = [tracking.TensorBoardTracker("run", tmp_path), tracking.JSONLinesTracker("run", tmp_path), tracking.WandBTracker("run"), tracking.TrackioTracker("run"),
            tracking.CometMLTracker("run"), tracking.AimTracker("run", repo="here"), tracking.MLflowTracker("run"), tracking.ClearMLTracker("run"),
            tracking.DVCLiveTracker(dir="here"), tracking.SwanLabTracker("run")]
    assert accel.PartialState._shared_state == {} and os.listdir(tmp_path) == [] and all(tracker.name for tracker in made)
    state = accel.PartialState(cpu=True)
    assert state._shared_state["num_processes"] == 1 and state._shared_state["device"] == state.device
