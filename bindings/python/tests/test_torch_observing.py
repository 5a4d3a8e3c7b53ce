# SPDX-License-Identifier: Apache-2.0
"""Trackers and the profiler with torch in the process."""

import json
import pathlib
import types

import pytest

import accel
import accel.errors
from accel.profiling import Profile
from accel.tracking import TensorBoardTracker
from accel.utils import ProfileKwargs

torch = pytest.importorskip("torch")
CASES = json.loads((pathlib.Path(__file__).resolve().parents[3] / "tests/parity/fixtures/profile_schedule.json").read_text())["cases"]


def events_of(folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    found.Reload()
    return found


def test_tensorboard(tmp_path):
    with pytest.raises(ValueError, match="requires a `logging_dir`"):
        accel.Accelerator(cpu=True, log_with="tensorboard")
    accelerator = accel.Accelerator(cpu=True, log_with="tensorboard", project_dir=str(tmp_path))
    accelerator.init_trackers("run", {"lr": 0.5}, {"tensorboard": {"flush_secs": 1, "max_queue": 3, "comment": "c"}})
    accelerator.log({"loss": torch.tensor(1.5, requires_grad=True), "note": "text", "both": {"a": 1, "b": 2}, "none": None, "many": torch.arange(5.0)}, step=1)
    tracker = accelerator.trackers[0]
    tracker.log_images({"picture": torch.rand(2, 3, 4, 5)}, step=1)
    assert isinstance(tracker, TensorBoardTracker) and tracker.logging_dir == str(tmp_path / "run")
    accelerator.end_training()
    found = events_of(tmp_path / "run")
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(1, 1.5)] and {"both/a", "both/b"} <= set(found.Tags()["scalars"])
    assert any(tag.startswith("picture") for tag in found.Tags()["images"])


def test_the_writer_of_torch(tmp_path):
    """What is asked of the SummaryWriter goes through it, beside what the engine writes."""
    pytest.importorskip("tensorboard")
    accelerator = accel.Accelerator(cpu=True, log_with="tensorboard", project_dir=str(tmp_path))
    accelerator.init_trackers("run", None, {"tensorboard": {"flush_interval_ms": 100, "flush_secs": 5}})
    writer = accelerator.get_tracker("tensorboard", unwrap=True)
    assert isinstance(writer, torch.utils.tensorboard.SummaryWriter)
    writer.add_scalar("own", 2.0, 7)
    accelerator.log({"loss": 1.0}, step=1)
    accelerator.log({"timed": torch.tensor(3.0), "note": "left to add_text", "none": None}, step=2, log_kwargs={"tensorboard": {"walltime": 1000.0}})
    accelerator.trackers[0].log_images({"picture": torch.rand(2, 3, 4, 5)}, step=1, walltime=1000.0)
    accelerator.end_training()
    found = events_of(tmp_path / "run")
    assert [event.step for event in found.Scalars("own")] == [7] and [event.wall_time for event in found.Scalars("timed")] == [1000.0]
    assert found.Scalars("loss")[0].value == 1.0 and accelerator.trackers[0].tracker is None


def test_the_profiler_is_that_of_torch(tmp_path):
    handler = ProfileKwargs(activities=["cpu"], record_shapes=True, output_trace_dir=tmp_path / "traces")
    accelerator = accel.Accelerator(cpu=True, kwargs_handlers=[handler])
    assert accelerator.profile_handler is handler
    model = accelerator.prepare(torch.nn.Linear(8, 4))
    with accelerator.profile() as profiler:
        accelerator.backward(model(torch.ones(2, 8)).sum())
    assert isinstance(profiler, torch.profiler.profile) and profiler.record_shapes and not profiler.with_stack
    assert "aten::linear" in profiler.key_averages().table(sort_by="cpu_time_total", row_limit=50)
    assert json.loads((tmp_path / "traces/profile_0.json").read_text())["traceEvents"]
    with accelerator.profile(ProfileKwargs(with_flops=True)) as other:
        pass
    assert other.with_flops and not other.record_shapes


def test_the_engines_profiler_beside_torch():
    """Its traces show torch's operators and what the library does."""
    accelerator = accel.Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(8, 4))
    with Profile(ProfileKwargs(activities=["cpu"])) as profile:
        accelerator.backward(model(torch.ones(2, 8)).sum())
    kinds = {event["name"]: event.get("cat") for event in profile.events()}
    assert "aten::linear" in kinds and "accel" in kinds.values()
    with accelerator.profile() as other:
        model(torch.ones(2, 8))
    assert isinstance(other, torch.profiler.profile)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_schedules(case):
    given, expected, ready = case["input"], case["expected"], []
    handler = ProfileKwargs(activities=["cpu"], schedule_option=given["schedule_option"], on_trace_ready=lambda profiler: ready.append(profiler.step_num))
    accelerator = accel.Accelerator(cpu=True)
    with accelerator.profile(handler) as profiler:
        actions = [profiler.schedule(step).name for step in range(given["steps"])]
        for _ in range(given["steps"]):
            profiler.step()
    assert actions == expected["actions"] and ready == expected["trace_ready_step_numbers"] and len(ready) == expected["trace_ready_calls"]


def test_activities(monkeypatch):
    assert ProfileKwargs(activities=["cpu", "cuda"]).build().activities == {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    with pytest.raises(ValueError, match="activity 'gpu'.*expected one of cpu, "):
        ProfileKwargs(activities=["gpu"]).build()
    monkeypatch.setattr(torch, "xpu", types.SimpleNamespace(is_available=lambda: True))
    assert torch.profiler.ProfilerActivity.XPU in ProfileKwargs(activities=["xpu"]).build().activities
