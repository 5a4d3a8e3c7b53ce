"""Models of accel in stages, for inference, and where chains of parts are cut."""

import itertools
import random

import pytest

import accel
from accel import nn
from accel.inference import find_pippy_batch_size, generate_device_map, pippy_forward, prepare_pippy
from accel.parallel.pipeline_cut import balanced


def test_the_cut_is_that_of_all_which_is_best():
    numbers = random.Random(3)
    for _ in range(60):
        costs = [numbers.choice([0, 1, numbers.random() * 5]) for _ in range(numbers.randint(1, 9))]
        for count in range(1, len(costs) + 1):
            def largest(begins):
                return max(sum(costs[begin:end]) for begin, end in zip(begins, [*begins[1:], len(costs)]))

            begins = balanced(costs, count)
            assert begins[0] == 0 and len(begins) == count and begins == sorted(set(begins))
            best = min(largest([0, *rest]) for rest in itertools.combinations(range(1, len(costs)), count - 1))
            assert largest(begins) == pytest.approx(best)
    with pytest.raises(ValueError, match="2 parts for 3 stages"):
        balanced([1, 1], 3)


def test_sizes_of_batches():
    rows = accel.zeros(3, 2)
    assert find_pippy_batch_size((None, 1, [rows]), {}) == 3
    assert find_pippy_batch_size((), {"a": "text", "b": rows}) == 3
    assert find_pippy_batch_size(None, None) is None and find_pippy_batch_size(("text",), {"a": 1}) is None


def test_one_process_has_the_model_itself(accelerator):
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert prepare_pippy(model, example_args=(accel.zeros(1, 2),)) is model and model.hf_split_points == []
    assert pippy_forward(lambda *args, **kwargs: (args, kwargs), 1, True, 1, two=2) == ((1,), {"two": 2})
    assert generate_device_map(model) == {"": 0} or set(generate_device_map(model).values()) == {"cpu"}
    places = generate_device_map(model, 2, max_memory={0: 200, 1: 200})
    assert set(places) == {"0", "1"} and set(places.values()) <= {0, 1}
    assert set(generate_device_map(nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))), 2)) == set("01234567")
    with pytest.raises(ValueError, match="num_chunks=0"):
        prepare_pippy(model, num_chunks=0)
    with pytest.raises(TypeError, match="prepare_pippy"):
        prepare_pippy(3)


STAGES = """
    import copy
    import accel
    from accel import nn
    from accel.inference import prepare_pippy

    state = accel.PartialState(cpu=True)
    accel.set_seed(4)
    layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.Linear(5, 2)]
    whole = nn.Sequential(*layers)
    for split_points, chunks, gather in (("auto", None, False), (["2", "3"][:state.num_processes - 1], 3, True)):
        model = prepare_pippy(nn.Sequential(*layers), split_points, num_chunks=chunks, gather_output=gather)
        assert len(model.hf_split_points) == state.num_processes - 1 and model.pippy_stage.num_chunks == (chunks or state.num_processes)
        for rows in (1, 2, 3, 4, 7):
            batch = accel.tensor([[row * 0.5 - column for column in range(3)] for row in range(rows)])
            output = model(batch) if state.is_main_process else model()
            if not gather and not state.is_last_process:
                assert output is None
                continue
            expected = whole(batch)
            assert output.shape == (rows, 2) and not output.requires_grad
            assert all(abs(a - b) < 1e-6 for left, right in zip(output.tolist(), expected.tolist()) for a, b in zip(left, right))

    def error_of(function):
        try:
            function()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    said = error_of(lambda: model(3) if state.is_main_process else model())
    assert "Could not find batch size from args or kwargs" in said, said
    said = error_of(lambda: model(accel.zeros(2, 4)) if state.is_main_process else model())
    assert "of the pipeline failed in" in said or state.is_main_process and "shape" in said, said
    said = error_of(lambda: model(batch, object()) if state.is_main_process else model())
    assert ("object to pass on" in said if state.is_main_process else "of the pipeline failed in" in said), said
    assert "ValueError: split_points=['2', '3', '1']" in error_of(lambda: prepare_pippy(whole, ["2", "3", "1"]))
    assert "ValueError" in error_of(lambda: prepare_pippy(whole, ["x", "y"][:state.num_processes - 1]))
    small = error_of(lambda: prepare_pippy(nn.Sequential(nn.Linear(2, 2))))
    assert "1 parts for" in small and small.startswith("ValueError"), small
    assert error_of(lambda: prepare_pippy(nn.Linear(2, 2))).startswith("NotImplementedError: a Linear of accel is not known as a chain of parts")
    assert "a Pipeline has a stage of this rank and cannot be copied" in error_of(lambda: copy.deepcopy(model.pippy_stage))
    output = model(batch) if state.is_main_process else model()  # and can be used again
    assert output.shape == (7, 2)
"""


@pytest.mark.parametrize("count", [2, 3])
def test_stages_of_layers(ranks, count):
    ranks(STAGES, count)
