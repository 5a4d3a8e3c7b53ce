# SPDX-License-Identifier: Apache-2.0
"""`accel.ops`: every operator, its overloads, its documentation."""

import inspect

import pytest

import accel
from accel import errors, functional as F, ops
from accel.tensors import schema


def test_calls():
    x = accel.tensor([[3.0, 1.0], [2.0, 4.0]])
    assert ops.add(x, x, alpha=10).tolist() == [[33, 11], [22, 44]] and ops.add(x, 1).tolist() == [[4, 2], [3, 5]]
    values, places = ops.topk(x, 1)
    assert values.tolist() == [[3], [4]] and places.tolist() == [[0], [1]]
    assert ops.sum(x, [0]).tolist() == [5, 5] and ops.sum(x, 0, keepdim=True).shape == (1, 2) and ops.sum(x).item() == 10
    assert ops.cat([x, x], 1).shape == (2, 4) and ops.where(x > 2, x, 0).tolist() == [[3, 0], [0, 4]]
    assert ops.maximum(x, 2).tolist() == [[3, 2], [2, 4]] and ops.softmax(x, -1).sum().item() == pytest.approx(2)
    assert ops.zeros([2], dtype=accel.int64).dtype == "int64" and ops.permute(x, 1, 0).tolist() == x.T.tolist()
    assert ops.sort(x, descending=True)[0].tolist() == [[3, 1], [4, 2]]
    out = accel.zeros(2, 2)
    ops.add(x, x, out=out)
    assert out.tolist() == [[6, 2], [4, 8]]
    assert x.clamp(2, 3).tolist() == [[3, 2], [2, 3]] and x.softmax(-1).shape == (2, 2)


def test_own_operators():
    """The engine's own operators are called as LibTorch's are."""
    rows, classes = accel.randn(12, 8), accel.randn(30, 8)
    rows.requires_grad_(True)
    target, bias = accel.tensor([*range(11), -100]), accel.randn(30)
    loss = F.linear_cross_entropy(rows, classes, target, linear_bias=bias, label_smoothing=0.1, chunk_size=5)
    assert loss.item() == pytest.approx(ops.cross_entropy_loss(ops.linear(rows, classes, bias), target, label_smoothing=0.1).item())
    loss.backward()
    assert rows.grad.tolist()[11] == [0] * 8 and rows.grad.abs().sum().item() > 0
    assert ops.linear_cross_entropy(rows, classes, target, reduction="none").shape == (12,)
    assert "accel::linear_cross_entropy(Tensor input" in ops.linear_cross_entropy.__doc__ and "linear_cross_entropy" in dir(F)
    with pytest.raises(errors.Error, match="target of row 0 is 30"):
        F.linear_cross_entropy(rows, classes, accel.tensor([30] * 12))


def test_documentation():
    assert "aten::softmax.int(Tensor self, int dim" in ops.softmax.__doc__
    assert list(inspect.signature(ops.add).parameters) == ["self", "other", "alpha"]
    assert {"add", "matmul", "softmax"} <= set(dir(ops)) and "relu" in dir(accel.zeros(1)) and len(ops.add.overloads) == 4


@pytest.mark.parametrize("call, kind, text", [
    (lambda x: ops.no_such_operator, AttributeError, "no_such_operator"),
    (lambda x: x.no_such_operator, AttributeError, "no_such_operator"),
    (lambda x: ops.add(x, "text"), TypeError, "no overload of add takes"),
    (lambda x: ops.add(x, x, beta=1), TypeError, "beta=int"),
    (lambda x: ops.add(), TypeError, "there are:"),
    (lambda x: ops.add(x, accel.zeros(5)), errors.TorchError, "must match"),
    (lambda x: ops.matmul(x, accel.zeros(5)), errors.TorchError, "")])
def test_wrong_calls_raise(call, kind, text):
    with pytest.raises(kind, match=text):
        call(accel.zeros(2, 2))


def test_all_schemas_are_read():
    count = 0
    for name in dir(ops):
        for overload in schema.overloads(name) if name[0] in "abm" else ():
            count += 1
            inside = overload.text[overload.text.index("(") + 1:]
            for parameter in overload.parameters:
                assert parameter.name.isidentifier() and parameter.name in inside and parameter.type, overload.text
    assert count > 400
