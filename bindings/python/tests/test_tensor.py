# SPDX-License-Identifier: Apache-2.0
"""Tensors: values, operators, parts, memory shared with others."""

import array
import copy
import gc
import pickle

import pytest

import accel
from accel import Tensor, errors
from accel.compat import availability


def test_making():
    assert accel.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert accel.tensor([1, 2]).dtype == "int64" and accel.tensor([1.0]).dtype == accel.float32
    assert accel.tensor([True]).dtype == accel.bool and accel.tensor(3).shape == ()
    assert accel.tensor([1, 2], dtype="bf16").dtype == accel.bfloat16
    assert accel.zeros(2, 3).shape == (2, 3) and accel.ones([2]).tolist() == [1, 1] and accel.full([2], 7, "int64").tolist() == [7, 7]
    assert accel.arange(3).tolist() == [0, 1, 2] and accel.arange(1, 2, 0.5).tolist() == [1, 1.5]
    assert accel.arange(1000).sum().item() == 499500
    assert accel.tensor([accel.ones(2), accel.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert type(accel.randn(2) + 1) is Tensor and isinstance(Tensor([1]), Tensor)
    assert accel.tensor([1.0], requires_grad=True).requires_grad


def test_operators():
    x = accel.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (x + x).tolist() == (2 * x).tolist() == (x * 2).tolist() == [[2, 4], [6, 8]]
    assert (1 - x).tolist() == [[0, -1], [-2, -3]] and (4 / x).tolist()[1] == pytest.approx([4 / 3, 1])
    assert (x @ x).tolist() == [[7, 10], [15, 22]] and (x**2).tolist() == [[1, 4], [9, 16]] and (2**x).tolist()[0] == [2, 4]
    assert (-x).tolist() == [[-1, -2], [-3, -4]] and (x // 2).tolist() == [[0, 1], [1, 2]] and (x % 2).tolist() == [[1, 0], [1, 0]]
    assert (x > 2).tolist() == [[False, False], [True, True]] and (x == x).all() and not (x != x).any()
    assert ((x > 1) & (x < 4)).tolist() == [[False, True], [True, False]] and (~(x > 2)).sum().item() == 2
    same = x
    x += 1
    assert same.tolist() == [[2, 3], [4, 5]]
    assert float(accel.tensor(1.5)) == 1.5 and int(accel.tensor(2)) == 2 and bool(accel.tensor(0)) is False
    assert [10, 20, 30][accel.tensor(1)] == 20 and f"{accel.tensor(1.25):.1f}" == "1.2"
    assert x.mean().item() == 3.5 and x.reshape(4).tolist() == x.view(-1).tolist() and x.T.shape == (2, 2)


def test_parts():
    x = accel.arange(24).reshape(2, 3, 4)
    assert x[1, 2, 3].item() == 23 and x[-1].shape == (3, 4) and x[:, 1:].shape == (2, 2, 4) and x[..., 0].shape == (2, 3)
    assert x[:, None].shape == (2, 1, 3, 4) and x[0, 0, ::2].tolist() == [0, 2]
    assert x[x > 21].tolist() == [22, 23] and x[[1, 0]].tolist() == [x[1].tolist(), x[0].tolist()]
    assert x[:, accel.tensor([0, 2])].shape == (2, 2, 4)
    x[0, 0] = 5
    assert x[0, 0].tolist() == [5, 5, 5, 5]
    x[x > 20] = 0
    assert x.max().item() == 20 and len(x) == 2 and [part.shape for part in x] == [(3, 4), (3, 4)]
    for wrong in (2, (0, 0, 0, 0), (0, 9)):
        with pytest.raises(IndexError):
            x[wrong]
    with pytest.raises(TypeError):
        x["a"]


def test_gradients():
    x = accel.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4]
    with accel.no_grad():
        assert not (x * 2).requires_grad
        with accel.enable_grad():
            assert (x * 2).requires_grad

    @accel.no_grad()
    def double(y):
        return y * 2

    assert not double(x).requires_grad and (x * 2).requires_grad
    with accel.inference_mode():
        assert not (x * 2).requires_grad
    with pytest.raises(KeyError):  # what the body raises goes first
        with accel.no_grad():
            raise KeyError("mine")
    assert (x * 2).requires_grad


def test_memory_is_shared_with_python():
    numbers = array.array("f", [1, 2, 3])
    x = accel.as_tensor(numbers)
    assert x.data_ptr() == numbers.buffer_info()[0]
    x[0] = 9
    assert numbers[0] == 9
    del numbers
    gc.collect()
    assert x.tolist() == [9, 2, 3]
    assert accel.as_tensor(x) is x
    assert accel.as_tensor(b"ab").tolist() == [97, 98]  # read only: copied
    assert accel.tensor(array.array("q", [1])).data_ptr() != 0


def test_memory_is_shared_with_numpy():
    numpy = pytest.importorskip("numpy")
    for dtype in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64"):
        made = numpy.zeros((2, 3), dtype)
        x = accel.as_tensor(made)
        assert x.dtype == dtype and x.data_ptr() == made.ctypes.data
        back = x.numpy()
        assert back.dtype == made.dtype and back.ctypes.data == made.ctypes.data and back.flags.writeable
    turned = numpy.arange(6.0).reshape(2, 3).T
    x = accel.as_tensor(turned)
    assert x.data_ptr() == turned.ctypes.data and x.stride() == (1, 3) and x.tolist() == turned.tolist()
    assert x.numpy().strides == turned.strides
    assert accel.as_tensor(turned[::-1]).tolist() == turned[::-1].tolist()  # copied
    back = accel.ones(3).numpy()  # the array keeps the tensor alive
    gc.collect()
    assert back.sum() == 3
    assert numpy.from_dlpack(x).ctypes.data == x.data_ptr()
    with pytest.raises(TypeError, match="float"):
        accel.ones(2, dtype="bfloat16").numpy()
    with pytest.raises(RuntimeError, match="detach"):
        accel.ones(2).requires_grad_().numpy()
    assert (numpy.ones(2, "float32") + accel.ones(2).numpy()).tolist() == [2, 2]
    fixed = numpy.arange(2.0)
    fixed.flags.writeable = False
    copied = accel.as_tensor(fixed)
    copied[0] = 5
    assert fixed[0] == 0 and copied.data_ptr() != fixed.ctypes.data
    with pytest.raises(BufferError):
        accel.from_dlpack(fixed)
    assert accel.as_tensor(numpy.float32(2)).item() == 2 and accel.tensor([numpy.float64(1), numpy.int32(2)]).tolist() == [1, 2]
    assert accel.tensor([numpy.ones(2), numpy.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    batch = next(iter(accel.DataLoader([{"x": numpy.ones(3, "float32"), "y": numpy.int64(4)}] * 2, batch_size=2)))
    assert batch["x"].shape == (2, 3) and batch["y"].tolist() == [4, 4]
    assert accel.nn.Linear(3, 1)(numpy.ones((2, 3), "float32")).shape == (2, 1)
    assert accel.PartialState(cpu=True) and accel.collectives.gather({"x": numpy.ones(2)})["x"].tolist() == [1, 1]


class Foreign:
    """A tensor of another library: all that is known of it is DLPack, of the first version or of the next."""

    def __init__(self, tensor, versioned):
        self.tensor, self.versioned = tensor, versioned

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **settings):
        if not self.versioned and settings:
            raise TypeError("unexpected keyword")
        return self.tensor.__dlpack__(**settings)


@pytest.mark.parametrize("versioned", [True, False])
def test_memory_is_shared_by_dlpack(versioned):
    mine = accel.ones(2, 2)
    foreign = Foreign(mine, versioned)
    for taken in (accel.from_dlpack(foreign), accel.as_tensor(foreign)):
        assert taken.data_ptr() == mine.data_ptr()
        taken[0, 0] = 5
    assert mine[0, 0].item() == 5 and (accel.ones(2, 2) + foreign).tolist() == [[6, 2], [2, 2]]
    with pytest.raises(errors.Error):
        accel.ones(2).requires_grad_().__dlpack__()
    with pytest.raises(TypeError):
        accel.from_dlpack(object())


def test_text_and_copies():
    assert repr(accel.tensor([1.5, 2])) == "tensor([1.5000, 2.0000])"
    assert "..." in repr(accel.zeros(2000)) and "requires_grad=True" in repr(accel.ones(1).requires_grad_())
    assert repr(accel.zeros(0)) == "tensor([], shape=(0,))" and "int8" in repr(accel.zeros(1, dtype="int8"))
    x = accel.randn(2, 3)
    assert (pickle.loads(pickle.dumps(x)) == x).all() and copy.deepcopy(x).data_ptr() != x.data_ptr()
    assert x.to("float64").dtype == "float64" and x.half().float().shape == (2, 3) and x.to("cpu").data_ptr() == x.data_ptr()
    assert accel.Device("cuda:1").index == 1 and accel.Device("cpu") == "cpu" and accel.Device("cpu").type == "cpu"
    assert repr(accel.float32) == "accel.float32" and accel.float32.itemsize == 4


@pytest.mark.parametrize("wrong", [lambda: accel.tensor(["a"]), lambda: accel.tensor([[1], 2]), lambda: accel.tensor([[1], [1, 2]]),
                                   lambda: accel.as_tensor(object()), lambda: accel.zeros(2, dtype="float99"), lambda: accel.zeros(-1),
                                   lambda: accel.zeros(2) + "a", lambda: accel.zeros(2) @ accel.zeros(3), lambda: accel.zeros(2).item(),
                                   lambda: accel.zeros(2).view(3), lambda: len(accel.tensor(1)), lambda: accel.Device("tpu")])
def test_wrong_calls_raise(wrong):
    with pytest.raises((errors.Error, TypeError, ValueError)):
        wrong()


# Regression: `x.sum(dim=1)` was refused, because the operator wants a list.
def test_one_number_for_a_list():
    x = accel.arange(6, dtype="float32").reshape(2, 3)
    assert x.sum(dim=1).tolist() == x.sum(1).tolist() == x.sum([1]).tolist() == [3, 12] and x.mean(dim=0).tolist() == [1.5, 2.5, 3.5]
    assert x.sum(dim=1, keepdim=True).shape == (2, 1) and (x >= 0).all(dim=1).tolist() == [True, True]
    assert x.roll(1, 0).tolist() == x.roll([1], [0]).tolist() == [[3, 4, 5], [0, 1, 2]]
    assert accel.ops.max_pool2d(accel.arange(16, dtype="float32").reshape(1, 1, 4, 4), 2).tolist() == [[[[5, 7], [13, 15]]]]
    for _ in range(2):  # the second time the overload is known
        assert x.sum(1).tolist() == [3, 12] and x.view(3, 2).shape == (3, 2)


# Regression: `accel.full(shape, 50)` was float32.
def test_dtypes_of_full():
    assert accel.full([1], 50).dtype == "int64" and accel.full([1], 0.5).dtype == "float32" and accel.full([1], True).dtype == "bool"
    assert accel.full([1], 50, "float64").dtype == "float64" and accel.zeros(1).dtype == accel.ones(1).dtype == "float32"


# Regression: `p.grad = None` was an error.
def test_gradients_can_be_set():
    x = accel.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    x.grad = None
    assert x.grad is None
    x.grad = accel.tensor([5.0, 6.0])
    assert x.grad.tolist() == [5, 6]
    (x * x).sum().backward()
    assert x.grad.tolist() == [7, 10]
    del x.grad
    assert x.grad is None
    with pytest.raises(errors.ShapeError):
        x.grad = accel.ones(3)
    with pytest.raises(errors.StateError):
        (x * x).grad = accel.ones(2)


# Regression: a pickled tensor lost that it requires gradients.
def test_copies_keep_that_gradients_are_wanted():
    x = accel.tensor([1.0, 2.0], requires_grad=True)
    for copied in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert copied.requires_grad and copied.is_leaf and copied.tolist() == [1, 2]
    assert not pickle.loads(pickle.dumps(accel.ones(1))).requires_grad
    with pytest.raises(RuntimeError, match="only leaves"):
        copy.deepcopy(x * 2)


# Regression: complex tensors could not become lists.
def test_complex_numbers_as_lists():
    x = accel.ops.view_as_complex(accel.tensor([[1.0, 2.0], [3.0, -4.0]]))
    assert x.tolist() == [1 + 2j, 3 - 4j] and x[0].tolist() == 1 + 2j and x.conj().tolist() == [1 - 2j, 3 + 4j]
    assert accel.utils.listify({"x": [x], "y": accel.ones(1)}) == {"x": [[1 + 2j, 3 - 4j]], "y": [1]}


def test_backward_takes_the_arguments_of_torch():
    x, other = accel.tensor([3.0], requires_grad=True), accel.tensor([10.0], requires_grad=True)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [12]
    with pytest.raises(accel.Error):
        y.backward()
    x.grad = None
    (x * x * x).backward(create_graph=True)
    slope = x.grad
    x.grad = None
    slope.backward()
    assert x.grad.tolist() == [18]
    x.grad = None
    (x * other).backward(gradient=accel.tensor([2.0]), inputs=[x])
    assert x.grad.tolist() == [20]
    assert other.grad is None
    with pytest.raises(TypeError):
        y.backward(graph=True)


@pytest.mark.parametrize("kind", ["mps", "mlu", "sdaa", "musa", "npu", "hpu", "xpu:1", "neuron", "xla"])
def test_devices_that_cannot_be_used_are_named(kind):
    name = kind.partition(":")[0]
    for move in (accel.ones(1).to, accel.nn.Linear(1, 1).to):
        with pytest.raises(errors.UnsupportedError, match=name):
            move(kind)
    assert not availability.is_available(name) and not getattr(accel.utils, f"is_{'torch_' if name == 'xla' else ''}{name}_available")()
    assert name in availability.unavailable_reason(name).lower()


def test_devices_of_this_process():
    assert availability.unavailable_reason("torchscript") is None
    with pytest.raises(ValueError, match="'teleportation'"):
        availability.unavailable_reason("teleportation")
    with pytest.raises(ValueError, match="'gpu' is not known; expected one of cpu, cuda, meta, mps"):
        accel.Device("gpu")
    assert str(accel.Device("xpu:2")) == "xpu:2" and accel.Device("xpu:2").type == "xpu"
    assert accel.ones(1).__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="device type 12"):
        accel.ones(1).__dlpack__(dl_device=(12, 0))
