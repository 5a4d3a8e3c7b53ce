# SPDX-License-Identifier: Apache-2.0
"""The functions of accel.utils on trees, as Accelerate's, whose results are recorded in tests/parity/fixtures/operations.json."""

import copy
import json
import pathlib
import pickle

import pytest

import accel
from accel import nn, utils

CASES = json.loads((pathlib.Path(__file__).resolve().parents[3] / "tests/parity/fixtures/operations.json").read_text())["cases"]
# Accelerate adds a wrong number of rows for many sizes (P6); tests/parity/operations_test.cpp looks at those.
CASES = [case for case in CASES if case["input"]["operation"] != "pad_input_tensors"]
ERRORS = {"ValueError": ValueError, "TypeError": TypeError, "IndexError": IndexError, "RuntimeError": RuntimeError}


def made(value, tensor):
    """What a fixture describes, with tensors that `tensor(values, dtype, shape)` makes."""
    if isinstance(value, dict):
        if value.keys() == {"dtype", "shape", "values"}:
            return tensor(value["values"], value["dtype"], value["shape"])
        if value.keys() == {"tuple"}:
            return tuple(made(item, tensor) for item in value["tuple"])
        return {name: made(item, tensor) for name, item in value.items()}
    return [made(item, tensor) for item in value] if isinstance(value, list) else value


def described(value):
    """A result in the form of the fixture."""
    if utils.is_torch_tensor(value):
        numbers = value.reshape(-1).tolist()
        return {"dtype": str(value.dtype).replace("torch.", ""), "shape": list(value.shape), "values": numbers}
    if utils.is_tensor_information(value):
        return {"shape": list(value.shape), "dtype": str(value.dtype).replace("torch.", "")}
    if isinstance(value, tuple):
        return {"tuple": [described(item) for item in value]}
    if isinstance(value, dict):
        return {name: described(item) for name, item in value.items()}
    return [described(item) for item in value] if isinstance(value, list) else value


def check(case, tensor):
    given, expected = case["input"], case["expected"]
    function, data = getattr(utils, given["operation"]), made(given["data"], tensor)
    arguments = (slice(given["start"], given["stop"]),) if "start" in given else (given["dim"],) if "dim" in given else ()
    if isinstance(expected, dict) and "error" in expected:
        with pytest.raises(ERRORS[expected["error"]["type"]]):
            function(data, *arguments)
    else:
        assert described(function(data, *arguments)) == expected


def of_accel(values, dtype, shape):
    return accel.tensor(values, dtype=dtype).reshape(shape)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_results_are_the_references(case):
    check(case, of_accel)


# Regression: `find_batch_size()` in Python looked for a tensor anywhere in the batch: empty lists, and texts before it, were
# passed over.
def test_the_first_thing_of_a_batch_decides():
    """Found beyond the recorded cases."""
    rows = accel.ones(3)
    for batch in ([[], rows], {"a": {}, "b": rows}):
        with pytest.raises(ValueError, match="begins with a (list|dict) that is empty"):
            utils.find_batch_size(batch)
        assert utils.ignorant_find_batch_size(batch) is None
    with pytest.raises(TypeError, match="begins with a str"):
        utils.find_batch_size({"a": "x", "b": rows})
    assert utils.ignorant_find_batch_size({"a": "x", "b": rows}) is None
    with pytest.raises(IndexError, match="no dimensions"):
        utils.ignorant_find_batch_size(accel.ones(()))


def test_whatever_can_move_is_moved():
    class Movable:
        def to(self, device, **_):
            return ("moved", str(device))

    tree = {"first": Movable(), "kept": Movable(), "list": [Movable(), 3, "text", None]}
    moved = utils.send_to_device(tree, "cpu", skip_keys=["kept"])
    assert moved == {"first": ("moved", "cpu"), "kept": tree["kept"], "list": [("moved", "cpu"), 3, "text", None]}


class Halves(nn.Module):
    @utils.convert_outputs_to_fp32
    def forward(self, x):
        return {"half": x.half(), "name": "x"}


# Regression: `ConvertOutputsToFp32` was missing, and pickling a converted forward failed without advice.
def test_forwards_whose_outputs_become_float32():
    class Wide(utils.ConvertOutputsToFp32):  # a class, as in Accelerate
        pass

    def forward(x, scale=2):
        "Multiplies."
        return (x * scale).bfloat16()

    for kind in (utils.convert_outputs_to_fp32, utils.ConvertOutputsToFp32, Wide):
        converted = kind(forward)
        assert converted(accel.ones(1), scale=3).dtype == accel.float32 and converted.__doc__ == "Multiplies." and converted.__wrapped__ is forward
        with pytest.raises(pickle.PicklingError, match=r"Accelerator\.unwrap_model\(model\)"):
            pickle.dumps(converted)
    assert Halves()(accel.ones(1))["half"].dtype == accel.float32  # a method, too
    assert copy.deepcopy(converted)(accel.ones(1)).tolist() == [2]
