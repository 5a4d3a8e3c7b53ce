# SPDX-License-Identifier: Apache-2.0
"""Trackers of the engine from Python: what reaches their files, and what does not."""

import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import types

import pytest

import accel
from accel import capi, tracking
from accel.tracking import engine_values, registry



def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def of_kind(folder, kind):
    return [line for line in lines_of(folder) if line["type"] == kind]


def started(folder, log_with, config=None, init_kwargs=None):
    accelerator = accel.Accelerator(cpu=True, log_with=log_with, project_dir=str(folder))
    accelerator.init_trackers("run", config, init_kwargs)
    return accelerator


def test_a_tracker_that_only_the_engine_knows_is_there():
    code = ("from accel import capi; listed = capi.accel_available_trackers(); capi.accel_available_trackers = lambda: [*listed, 'novel']\n"
            "from accel import tracking; print(issubclass(tracking.LOGGER_TYPE_TO_CLASS['novel'], tracking.EngineTracker),"
            "*map(str, tracking.get_available_trackers()), *tracking.filter_trackers(['novel', 'all'], 'folder'))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[:1] == ["True"] and done.stdout.split().count("novel") == 2, done.stderr


def test_a_run(tmp_path):
    config = {"lr": 0.5, "inner": {"layers": [1, 2], "where": tmp_path}, "kind": accel.LoggerType.CSV, "none": None}
    accelerator = started(tmp_path, ["jsonl", "csv", "tensorboard"], config)
    accelerator.log({"loss": 1.5, "train": {"lr": 0.1}, "note": "text"}, step=1)
    accelerator.log({"loss": math.nan, "whole": 2, "yes": True, "far": -math.inf}, step=2)
    accelerator.log({"loss": 1.0})
    tracker = accelerator.get_tracker("jsonl")
    assert isinstance(tracker, tracking.JSONLinesTracker) and accelerator.get_tracker("jsonl", unwrap=True).endswith("metrics.jsonl")
    accelerator.end_training()
    (start,), (configured,) = of_kind(tmp_path / "run", "run"), of_kind(tmp_path / "run", "config")
    assert start["project"] == "run" and start["pid"] == os.getpid() and start["world_size"] == 1
    assert configured["values"] == {"lr": 0.5, "inner": {"layers": [1, 2], "where": str(tmp_path)}, "kind": "csv", "none": None}
    assert [(line["step"], line["values"]) for line in of_kind(tmp_path / "run", "values")] == [
        (1, {"loss": 1.5, "train/lr": 0.1, "note": "text"}), (2, {"loss": "NaN", "whole": 2, "yes": 1, "far": "-Infinity"}), (None, {"loss": 1.0})]
    assert lines_of(tmp_path / "run")[-1] == {"type": "end", "time": lines_of(tmp_path / "run")[-1]["time"], "status": "finished"}
    with open(tmp_path / "run/metrics.csv", newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["loss"] == "1.5"
    assert any(path.name.startswith("events.out.tfevents") for path in (tmp_path / "run").iterdir())


def test_a_summary_writer_that_was_closed_begins_again(tmp_path):
    accelerator = started(tmp_path, "tensorboard")
    accelerator.log({"loss": 1.0}, step=1)
    accelerator.end_training()
    before = set((tmp_path / "run").glob("events.out.tfevents*"))
    accelerator.log({"late loss": 2.0}, step=2)
    accelerator.end_training()
    accelerator.end_training()
    (further,) = set((tmp_path / "run").glob("events.out.tfevents*")) - before
    assert b"late loss" in further.read_bytes()
    with pytest.raises(RuntimeError, match="does not run"):  # which has never run
        tracking.TensorBoardTracker("other", tmp_path).log({"loss": 1.0})


@pytest.mark.parametrize("kind", ["tensorboard", "jsonl"])
def test_a_project_without_a_name(tmp_path, kind):
    accelerator = accel.Accelerator(cpu=True, log_with=kind, project_dir=str(tmp_path))
    accelerator.init_trackers("", config={"lr": 1})
    accelerator.log({"loss": 1.0}, step=1)
    accelerator.end_training()
    assert any(path.stat().st_size for path in (tmp_path / tracking.engine.UNNAMED).iterdir())


class Number(float):
    """A number of another class."""


def test_values(tmp_path, caplog):
    """What is neither number nor text nor tensor is left out, with a warning."""
    accelerator = started(tmp_path, "jsonl")
    kinds = {"tensor": accel.tensor(2.5), "one": accel.tensor([3]), "many": accel.arange(4.0), "own": Number(0.5), "large": 10**400, "larger": 2**70,
             "none": None, "object": object(), "list": [1, 2], "surrogate": "a\ud800b", "nul": "a\0b", "empty": {}}
    accelerator.log(kinds, step=1)
    accelerator.log({"object": object(), 7: 1}, step=2)
    accelerator.end_training()
    values = of_kind(tmp_path / "run", "values")
    assert values[0]["values"] == {"tensor": 2.5, "one": 3, "own": 0.5, "large": "Infinity", "larger": 2.0**70, "surrogate": "a?b", "nul": "a\ufffdb"}
    assert values[1]["values"] == {"7": 1}
    (histogram,) = of_kind(tmp_path / "run", "histogram")
    assert (histogram["name"], histogram["count"], histogram["max"]) == ("many", 4, 3)
    assert sorted(record.message.split()[2] for record in caplog.records if "is left out" in record.message) == ["list", "none", "object"]


def test_values_of_numpy(tmp_path):
    numpy = pytest.importorskip("numpy")
    accel.PartialState(cpu=True)
    kept = engine_values.loggable({"half": numpy.float16(0.5), "whole": numpy.int64(3), "yes": numpy.bool_(True), "zero": numpy.array(4), "array": numpy.arange(3),
                                   "texts": numpy.array(["a"]), "objects": numpy.array([object()], dtype=object), "complex": numpy.complex64(1j)})
    assert kept.pop("array").tolist() == [0, 1, 2] and kept == {"half": 0.5, "whole": 3, "yes": True, "zero": 4}


def test_images_tables_figures_and_files(tmp_path):
    accelerator = started(tmp_path, ["jsonl"])
    tracker = accelerator.get_tracker("jsonl")
    tracker.log_images({"gray": accel.zeros(2, 3)}, step=1, dataformats="HW")
    tracker.log_images({"color": [accel.zeros(3, 2, 4), accel.ones(3, 2, 4)]}, step=1)
    tracker.log_table("table", columns=["a", "b"], data=[[1, "x"], [2.5, None]], step=2)
    tracker.log_table("rows", data=[["a"], [True]])
    frame = types.SimpleNamespace(columns=["a"], values=types.SimpleNamespace(tolist=lambda: [[1]]))
    tracker.log_table("frame", dataframe=frame)
    figure = types.SimpleNamespace(savefig=lambda file, **settings: file.write(b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>'))
    tracker.log_figure(figure, "figure", step=3)
    (tmp_path / "file.txt").write_text("content")
    tracker.log_artifact(tmp_path / "file.txt", "there")
    tracker.flush()
    sizes = {line["name"]: (line["width"], line["height"]) for line in of_kind(tmp_path / "run", "image")}
    assert sizes["gray"] == (3, 2) and (4, 2) in sizes.values()
    assert [(line["name"], line["columns"], line["rows"]) for line in of_kind(tmp_path / "run", "table")] == [
        ("table", ["a", "b"], [[1, "x"], [2.5, ""]]), ("rows", ["a"], [[True]]), ("frame", ["a"], [[1]])]
    assert [line["name"] for line in of_kind(tmp_path / "run", "figure")] == ["figure"] and of_kind(tmp_path / "run", "artifact")
    for call, error, text in ((lambda: tracker.log_images({"a": "text"}), TypeError, "image 'a' is a str"),
                              (lambda: tracker.log_images({"a": [accel.zeros(2, 2), accel.zeros(3, 2)]}), ValueError, "have the shapes"),
                              (lambda: tracker.log_images({}, dataformats="WH"), ValueError, "dataformats='WH'"),
                              (lambda: tracker.log_table("t"), ValueError, "`data` or `dataframe`"),
                              (lambda: tracker.log({}, step=1, more=2), TypeError, "no settings more")):
        with pytest.raises(error, match=text):
            call()
    accelerator.end_training()
    with pytest.raises(RuntimeError, match="'jsonl' does not run"):
        tracker.log_table("late", data=[["a"]])


def test_settings_and_rules(tmp_path):
    with pytest.raises(ValueError, match="requires a `logging_dir`"):
        accel.Accelerator(cpu=True, log_with="csv")
    with pytest.raises(ValueError, match="unknown_setting"):
        started(tmp_path, "jsonl", None, {"jsonl": {"unknown_setting": 1}})
    accelerator = started(tmp_path, ["jsonl"], None, {"jsonl": {"flush_interval_ms": 1, "resume": True}})
    accelerator.log({"loss": 1.0}, step=1)
    accelerator.init_trackers("run", {"again": 1})  # the run goes on
    accelerator.log({"loss": 2.0}, step=2)
    accelerator.end_training()
    assert [line["resumed"] for line in of_kind(tmp_path / "run", "run")] == [False, True]
    assert [line["step"] for line in of_kind(tmp_path / "run", "values")] == [1, 2]
    accelerator = accel.Accelerator(cpu=True, log_with="csv", project_dir=str(tmp_path))
    for _ in range(2):  # as a cell of a notebook that runs again
        accelerator = accel.Accelerator(cpu=True, log_with="csv", project_dir=str(tmp_path))
        accelerator.init_trackers("cell")
        accelerator.log({"loss": 1.0}, step=1)
    accel.PartialState._reset_state()
    elsewhere = [tracking.JSONLinesTracker("one", tmp_path), tracking.CSVTracker("other", tmp_path)]
    with pytest.raises(ValueError, match="different runs or folders: .*/one, .*/other"):
        started(tmp_path, elsewhere)


@pytest.fixture
def mlflow(monkeypatch):
    """As where the package mlflow is not installed."""
    if "mlflow" not in capi.accel_available_trackers():
        pytest.skip("the engine has no tracker of MLflow here")
    monkeypatch.setitem(registry.LOGGER_TYPE_TO_CLASS, "mlflow", tracking.EngineMLflowTracker)


def test_runs_of_mlflow(mlflow, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "store"))
    accelerator = accel.Accelerator(cpu=True, log_with="mlflow")
    accelerator.init_trackers("project", {"lr": 0.5}, {"mlflow": {"tags": {"kind": "test"}, "run_name": "named"}})
    accelerator.log({"loss": 1.5}, step=3)
    folder = pathlib.Path(accelerator.get_tracker("mlflow", unwrap=True).removeprefix("file://"))
    accelerator.end_training()
    assert (folder / "params/lr").read_text() == "0.5" and (folder / "metrics/loss").read_text().split()[1:] == ["1.5", "3"]
    assert (folder / "tags/kind").read_text() == "test" and "named" in (folder / "meta.yaml").read_text()


def test_a_service_that_does_not_answer_is_left_out(mlflow, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # discard: nobody listens
    accelerator = accel.Accelerator(cpu=True, log_with=["mlflow", "jsonl"], project_dir=str(tmp_path))
    accelerator.init_trackers("run")
    accelerator.log({"loss": 1.5}, step=3)
    assert [tracker.name for tracker in accelerator.trackers] == ["jsonl"]
    accelerator.end_training()
    assert of_kind(tmp_path / "run", "values")[0]["values"] == {"loss": 1.5}


def test_a_tracker_by_itself(tmp_path):
    """Without an Accelerator: start(), log(), finish()."""
    accel.PartialState(cpu=True)
    tracker = tracking.JSONLinesTracker("run", tmp_path)
    with pytest.raises(RuntimeError, match="call start"):
        tracker.log({"loss": 1.0})
    tracker.start()
    tracker.log({"loss": 1.0}, step=1)
    tracker.store_init_configuration({"lr": 1})
    tracker.log({"loss": 2.0}, step=2)
    tracker.finish()
    tracker.finish()
    assert [line["type"] for line in lines_of(tmp_path / "run")] == ["run", "values", "end", "run", "config", "values", "end"]


def test_a_tracker_of_the_low_layer(accelerator):
    """A function as a tracker of the engine."""
    told = []
    state = accelerator._current()
    capi.accel_add_tracker(state, capi.accel_tracker_create("mine", None, lambda event, content, step: told.append((event, content, step))))
    capi.accel_init_trackers(state, "project", {"lr": 1}, None, None)
    capi.accel_log(state, {"loss": 0.5, "inner": {"a": accel.tensor([1.0])}}, 3, {"mine": {"more": 1}})
    with pytest.raises(ValueError, match="2 names for 1 numbers"):
        capi.accel_log_scalars(state, ["a", "b"], [1.0], 4)
    capi.accel_log_scalars(state, ["a", "b"], [1.0, 2.0], 4)
    capi.accel_finish_trackers(state)
    kinds = [event for event, *_ in told]
    assert kinds == [capi.ACCEL_TRACKER_START, capi.ACCEL_TRACKER_CONFIGURATION, capi.ACCEL_TRACKER_VALUES, capi.ACCEL_TRACKER_VALUES, capi.ACCEL_TRACKER_FINISH]
    assert told[1][1] == {"lr": 1} and told[2][1]["values"]["loss"] == 0.5 and told[2][1]["kwargs"] == {"more": 1} and told[2][2] == 3
    assert told[3][1]["values"] == {"a": 1.0, "b": 2.0}


def test_only_the_main_process_writes(ranks, tmp_path):
    ranks(f"""
        import accel
        accelerator = accel.Accelerator(cpu=True, log_with="jsonl", project_dir={str(tmp_path)!r})
        accelerator.init_trackers("run", {{"lr": 1}})
        accelerator.log({{"loss": accelerator.process_index}}, step=1)
        tracker = accelerator.get_tracker("jsonl")
        tracker.log_table("table", data=[["a"], [accelerator.process_index]])
        assert (accelerator.get_tracker("jsonl", unwrap=True) != "") == accelerator.is_main_process
        accelerator.end_training()
    """)
    assert [line["values"] for line in of_kind(tmp_path / "run", "values")] == [{"loss": 0}] and len(of_kind(tmp_path / "run", "table")) == 1
