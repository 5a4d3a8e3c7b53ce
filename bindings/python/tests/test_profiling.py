# SPDX-License-Identifier: Apache-2.0
"""The profiler, step reports and metrics from Python. Programs of torch are in test_torch_profiling.py."""

import json
import pathlib

import pytest

import accel
from accel import capi, nn
from accel.profiling import Profile, ProfilerAction, merge_traces, span
from accel.utils import ProfileKwargs

FIXTURE = pathlib.Path(__file__).resolve().parents[3] / "tests/parity/fixtures/profile_schedule.json"
CASES = json.loads(FIXTURE.read_text())["cases"]


def test_settings():
    kwargs = ProfileKwargs(activities=["cpu"], schedule_option={"wait": 1, "warmup": 2, "active": 3}, record_shapes=True, output_trace_dir="there")
    assert kwargs.to_kwargs() == {"activities": ["cpu"], "schedule_option": {"wait": 1, "warmup": 2, "active": 3}, "record_shapes": True,
                                  "output_trace_dir": "there"}
    options = kwargs.to_engine()
    assert (options.wait, options.warmup, options.active, options.record_shapes, options.activities) == (1, 2, 3, 1, "cpu")
    assert options.profile_memory == 0 and options.repeat == capi.ACCEL_UNSET_INT64
    with pytest.raises(ValueError, match="activity 'gpu' .*expected one of cpu, xpu"):
        ProfileKwargs(activities=["gpu"]).to_engine()
    for wrong in ({"wait": 1}, {"wait": 1, "warmup": 1, "active": 1, "steps": 2}):
        with pytest.raises(TypeError, match="expected wait, warmup, active"):
            ProfileKwargs(schedule_option=wrong).to_engine()
    with pytest.raises(ValueError, match="two ProfileKwargs"):
        accel.Accelerator(cpu=True, kwargs_handlers=[kwargs, kwargs])
    with pytest.raises(RuntimeError, match="has not begun"):
        Profile(kwargs).step()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_schedules(case, accelerator):
    given, expected = case["input"], case["expected"]
    ready = []
    handler = ProfileKwargs(activities=["cpu"], schedule_option=given["schedule_option"], on_trace_ready=lambda profile: ready.append(profile.step_num))
    with accelerator.profile(handler) as profile:
        assert isinstance(profile, Profile)
        actions = [ProfilerAction(profile.schedule(step)).name for step in range(given["steps"])]
        for _ in range(given["steps"]):
            profile.step()
    assert actions == expected["actions"]
    assert len(ready) == expected["trace_ready_calls"] and ready == expected["trace_ready_step_numbers"]


def test_what_is_recorded(tmp_path):
    handler = ProfileKwargs(activities=["cpu"], record_shapes=True, profile_memory=True, output_trace_dir=tmp_path / "traces")
    accelerator = accel.Accelerator(cpu=True, kwargs_handlers=[handler])
    model = accelerator.prepare(nn.Linear(8, 4))
    with accelerator.profile() as profile:
        assert profile.schedule(0) is ProfilerAction.RECORD
        with span("mine"):
            model(accel.ones(2, 8)).sum()
        profile.step()
    averages = profile.key_averages(group_by_input_shape=True)
    names = [average.key for average in averages]
    assert "aten::addmm" in names and "mine" in names and averages[names.index("aten::addmm")].count == 1
    assert [row.self_cpu_time_total for row in averages] == sorted((row.self_cpu_time_total for row in averages), reverse=True)
    assert "aten::addmm" in averages.table(sort_by="self_cpu_time_total", row_limit=-1) and averages.total_average() > 0
    with pytest.raises(ValueError, match="nothing"):
        averages.table(sort_by="nothing")
    assert {"aten::addmm", "mine"} <= {event["name"] for event in profile.events()} and profile.memory_timeline()
    profile.export_chrome_trace(tmp_path / "trace.json")
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text()) and "traceEvents" in json.loads((tmp_path / "traces/profile_0.json").read_text())
    merge_traces(tmp_path / "traces", tmp_path / "merged.json")
    assert json.loads((tmp_path / "merged.json").read_text())["traceEvents"]


def test_the_traces_of_all_ranks(ranks, tmp_path):
    ranks(f"""
        import accel
        from accel.utils import ProfileKwargs

        accelerator = accel.Accelerator(cpu=True)
        with accelerator.profile(ProfileKwargs(output_trace_dir={str(tmp_path / "traces")!r})):
            accelerator.gather(accel.ones(4))
        accelerator.end_training()
    """)
    for rank in range(2):
        events = json.loads((tmp_path / f"traces/profile_{rank}.json").read_text())["traceEvents"]
        collectives = [event for event in events if event.get("cat") == "accel" and event.get("args", {}).get("kind") == "collective"]
        assert collectives and collectives[0]["args"]["ranks"] == 2
    merged = json.loads((tmp_path / "traces/profile_merged.json").read_text())["traceEvents"]
    assert {event["pid"] for event in merged if event.get("cat") == "accel"} == {0, 1}


def test_failures(accelerator, tmp_path):
    class Mine(Exception):
        pass

    def fails(profile):
        raise Mine

    with pytest.raises(Mine), accelerator.profile(ProfileKwargs(on_trace_ready=fails)):
        accel.ones(1)
    with pytest.raises(Mine), accelerator.profile(ProfileKwargs(output_trace_dir=tmp_path)):
        raise Mine
    with accelerator.profile() as first, pytest.raises(RuntimeError), accelerator.profile():
        pass  # one at a time
    assert first.key_averages() is not None


def test_step_reports(accelerator):
    model = accelerator.prepare(nn.Linear(2, 1))
    optimizer = accelerator.prepare(accel.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        accelerator.backward(model(accel.ones(4, 2)).sum())
        optimizer.step()
        optimizer.zero_grad()
    report = accelerator.step_report()
    assert report["steps"] >= 2 and report["mean"]["total"] > 0
    accelerator.count_tokens(0)
    accelerator.set_model_flops(6e6, 1e12)
    accelerator.count_tokens(1000)
    together = accelerator.step_report_of_ranks(reset=True)
    assert together["slowest_rank"] is None and [entry["rank"] for entry in together["ranks"]] == [0] and together["tokens_per_second"] > 0
    assert "optimizer" in accelerator.step_report_table(together) and accelerator.step_report()["steps"] == 0
    with pytest.raises(ValueError):
        accelerator.count_tokens(-1)


def test_metrics_are_served(accelerator):
    import urllib.request

    try:
        port = accelerator.serve_metrics()
    except accel.errors.UnsupportedError as error:
        pytest.skip(str(error))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert answer.status == 200 and b"accel" in answer.read()
