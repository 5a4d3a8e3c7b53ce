# SPDX-License-Identifier: Apache-2.0
"""Environment variables of programs and their tests, and what processors a rank has."""

import asyncio
import os

import pytest

import accel
from accel import utils
from accel.utils import (clear_environment, get_int_from_env, get_module_class_from_name, override_numa_affinity, parse_choice_from_env,
                         parse_flag_from_env, patch_environment, purge_accelerate_environment, set_numa_affinity)
from accel.utils.memory import should_reduce_batch_size


@pytest.fixture(autouse=True)
def same_afterwards():
    kept = dict(os.environ)
    yield
    left = dict(os.environ)
    for name in {*left, *kept}:  # the next test begins as this one
        if left.get(name) != kept.get(name):
            os.environ.pop(name, None)
            os.environ.update({name: kept[name]} if name in kept else {})
    changed = {name for name in {*left, *kept} if left.get(name) != kept.get(name)} - {"PYTEST_CURRENT_TEST"}
    assert not changed


# Regression: `PartialState._shared_state` had no `_cpu`, and the processors that a job was bound to were not logged.
def test_the_shared_state_says_whether_the_cpu_was_asked_for():
    assert accel.PartialState._shared_state == {}
    accel.Accelerator(cpu=True)
    assert accel.PartialState._shared_state["_cpu"] is True
    accel.PartialState._reset_state()
    with patch_environment(ACCELERATE_USE_CPU="false"):
        accel.PartialState()
        assert accel.PartialState._shared_state["_cpu"] is False


def test_a_job_logs_its_processors(caplog):
    processors = os.sched_getaffinity(0)
    try:
        for debug, number in (("true", 1), ("false", 0)):
            caplog.clear()
            with caplog.at_level("INFO", logger="accel.utils.environment"), patch_environment(ACCELERATE_CPU_AFFINITY="1", ACCELERATE_DEBUG_MODE=debug):
                accel.PartialState._reset_state()
                accel.Accelerator(cpu=True)
            told = [record.getMessage() for record in caplog.records]
            assert told == [f"Assigning {len(os.sched_getaffinity(0))} cpu cores to process 0: {sorted(os.sched_getaffinity(0))}"] * number
    finally:
        os.sched_setaffinity(0, processors)


def test_patches_end_with_their_block():
    os.environ["ACCEL_TEST_THERE"] = "1"
    with pytest.raises(KeyError):
        with patch_environment(accel_test_there=2, accel_test_new=True):
            assert (os.environ["ACCEL_TEST_THERE"], os.environ["ACCEL_TEST_NEW"]) == ("2", "True")
            del os.environ["ACCEL_TEST_NEW"]
            raise KeyError
    assert os.environ.pop("ACCEL_TEST_THERE") == "1" and "ACCEL_TEST_NEW" not in os.environ


def test_a_cleared_environment_comes_back():
    with clear_environment():
        assert not os.environ
        os.environ["ACCEL_TEST_NEW"] = "1"
    assert "ACCEL_TEST_NEW" not in os.environ and "PATH" in os.environ


def set_variables():
    os.environ.update(ACCELERATE_NEW="1", ACCELERATE_THERE="changed")


def assert_purged():
    assert "ACCELERATE_NEW" not in os.environ and os.environ["ACCELERATE_THERE"] == "kept"


# Regression: static, class and asynchronous tests of a class under `purge_accelerate_environment` were called with one argument
# too many, or lost their variables before they ran.
def test_purged_functions_and_classes():
    os.environ["ACCELERATE_THERE"] = "kept"
    calls = []

    @purge_accelerate_environment
    def function(number):
        set_variables()
        return number + 1

    assert function(1) == 2 and function.__name__ == "function"
    assert_purged()

    @purge_accelerate_environment
    class Base:
        def test_method(self):
            set_variables()
            calls.append(type(self).__name__)

        @staticmethod
        def test_static():
            set_variables()
            calls.append("static")

        @classmethod
        def test_class(cls):
            set_variables()
            calls.append(cls.__name__)

        async def test_async(self):
            set_variables()
            await asyncio.sleep(0)
            assert os.environ["ACCELERATE_NEW"] == "1"
            calls.append("async")

        def helper(self):
            os.environ["ACCELERATE_THERE"] = "by the helper"

        test_value = 3

    class Derived(Base):
        def test_more(self):
            set_variables()
            calls.append("more")

    for cls in (Base, Derived):
        for name in ("test_method", "test_static", "test_class"):
            getattr(cls(), name)()
            assert_purged()
        asyncio.run(cls().test_async())
        assert_purged()
    Derived().test_more()
    assert_purged()
    Base().helper()
    assert os.environ.pop("ACCELERATE_THERE") == "by the helper" and Base.test_value == 3
    assert calls == ["Base", "static", "Base", "async", "Derived", "static", "Derived", "async", "more"]


def test_variables_are_read():
    with patch_environment(accel_test_a="yes", accel_test_b="-1", accel_test_c="7"):
        assert parse_flag_from_env("ACCEL_TEST_A") and not parse_flag_from_env("ACCEL_TEST_NONE") and parse_flag_from_env("ACCEL_TEST_NONE", True)
        assert parse_choice_from_env("ACCEL_TEST_A") == "yes" and parse_choice_from_env("ACCEL_TEST_NONE") == "no"
        assert get_int_from_env(["ACCEL_TEST_NONE", "ACCEL_TEST_B", "ACCEL_TEST_C"], 3) == 7 and get_int_from_env(["ACCEL_TEST_B"], 3) == 3
    with patch_environment(accel_test_a="perhaps"), pytest.raises(ValueError, match="perhaps"):
        parse_flag_from_env("ACCEL_TEST_A")


def test_processors_of_a_rank():
    processors = os.sched_getaffinity(0)
    try:
        with patch_environment(local_world_size=len(processors)):
            override_numa_affinity(len(processors) - 1)
            assert os.sched_getaffinity(0) < processors or len(processors) == 1
            bound = os.sched_getaffinity(0)
            os.sched_setaffinity(0, processors)
            set_numa_affinity(len(processors) - 1)
            assert os.sched_getaffinity(0) == bound
            os.sched_setaffinity(0, processors)
            set_numa_affinity(len(processors) - 1)  # is known already
            assert os.sched_getaffinity(0) == processors
        with pytest.raises(ValueError, match="local_process_index is -1"):
            override_numa_affinity(-1)
    finally:
        os.sched_setaffinity(0, processors)
        set_numa_affinity.cache_clear()


def test_errors_of_full_memories():
    from accel import errors

    assert should_reduce_batch_size(RuntimeError("CUDA out of memory. Tried to allocate")) and should_reduce_batch_size(RuntimeError("CUDA error: out of memory\nCUDA kernel"))
    assert should_reduce_batch_size(errors.OutOfMemoryError("full"))
    assert not should_reduce_batch_size(RuntimeError("CUDA out of memory. ", 1)) and not should_reduce_batch_size(ValueError(" out of memory."))
    assert not should_reduce_batch_size(RuntimeError("shapes"))


def test_classes_of_modules():
    from accel import nn

    model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.Linear(1, 1))
    assert get_module_class_from_name(model, "Linear") is nn.Linear and get_module_class_from_name(model, "Sequential") is nn.Sequential
    assert get_module_class_from_name(model, "Conv2d") is None and utils.modeling.get_module_class_from_name is get_module_class_from_name
