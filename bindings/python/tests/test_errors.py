# SPDX-License-Identifier: Apache-2.0
"""Errors come out as exceptions with their class, code and place; those of callbacks as they were raised."""

import gc
import os
import threading
import traceback

import pytest

import accel
from accel import capi, errors, nn


def test_classes():
    with pytest.raises(errors.NotFoundError) as caught:
        capi.accel_op_find("aten::no_such_operator", "")
    error = caught.value
    assert isinstance(error, (accel.Error, LookupError, ValueError)) and error.status == capi.ACCEL_ERROR_NOT_FOUND
    assert error.code == "ACCEL_ERROR_NOT_FOUND" and error.rank == -1 and error.function == "accel_op_find"
    assert "no_such_operator" in str(error) and error.args == (str(error),)
    for status, kind in errors.CLASSES.items():
        assert issubclass(kind, accel.Error) and capi.accel_status_name(status).startswith("ACCEL_ERROR_")
    statuses = {getattr(capi, name) for name in dir(capi) if name.startswith("ACCEL_ERROR_")} - {capi.ACCEL_ERROR_USER}
    assert statuses == set(errors.CLASSES)


def test_use_after_close(accelerator):
    x = accel.ones(2)
    capi.accel_tensor_release(x)
    with pytest.raises(errors.HandleError):
        x.shape  # noqa: B018
    assert repr(accel.ones(1)) == "tensor([1.0000])"
    accelerator.end_training()
    model = accelerator.prepare(nn.Linear(1, 1))
    assert model(accel.ones(1, 1)).shape == (1, 1)


def test_no_state_is_a_clear_error():
    with pytest.raises(RuntimeError, match=r"make an Accelerator\(\)"):
        accel.collectives.gather(accel.ones(1))
    with pytest.raises(ValueError, match=r"make an Accelerator\(\)"):
        accel.AcceleratorState()


class Failing(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        return self.deeper(x)

    def deeper(self, x):
        raise self.error


@pytest.mark.parametrize("error", [KeyError("mine"), ValueError("mine"), KeyboardInterrupt(), MemoryError("mine"), OSError(2, "mine")])
def test_exceptions_of_callbacks_come_out(error, accelerator):
    for model in (Failing(error), accelerator.prepare(Failing(error)), nn.Sequential(nn.Flatten(), Failing(error))):
        with pytest.raises(type(error)) as caught:
            model(accel.ones(1, 1))
        assert caught.value is error
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert "deeper" in names and "test_exceptions_of_callbacks_come_out" in names
    error.__traceback__ = None


def test_errors_of_ours_keep_their_status_through_callbacks():
    class Mismatch(nn.Module):
        def forward(self, x):
            return x @ accel.ones(7, 7)

    with pytest.raises(errors.TorchError):
        Mismatch()(accel.ones(1, 1))
    with pytest.raises(errors.NotFoundError):  # and a later error of the library is its own
        capi.accel_op_find("aten::no_such_operator", "")


def test_wrong_values_of_callbacks():
    loader = accel.DataLoader([1])
    capi.accel_dataloader_set_collate(loader.handle, lambda items: object())
    with pytest.raises(TypeError, match="object is not a value"):
        list(loader)


def test_a_forked_child_gets_an_error():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            accel.ones(2)
            text = "no error"
        except accel.Error as error:
            text = f"{error.code}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    assert told.startswith("ACCEL_ERROR_INVALID_STATE") and "fork" in told


def test_threads():
    """Operators, forwards in Python and errors in many threads at once."""
    class Double(nn.Module):
        def forward(self, x):
            return x + x

    wrong = []

    def work(number):
        model = Double()
        for step in range(100):
            if model(accel.full([2], number)).tolist() != [2 * number] * 2:
                wrong.append(number)
            try:
                capi.accel_op_find(f"aten::none_{number}_{step}", "")
            except accel.Error as error:
                if f"none_{number}_{step}" not in str(error):
                    wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_is_kept():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

    before = capi.accel_debug_live_objects()
    for _ in range(20):
        Part()(accel.ones(1, 2)).sum().backward()
        with pytest.raises(TypeError):
            Part()(object())
    gc.collect()
    assert capi.accel_debug_live_objects() == before


# Regression: arguments of a wrong kind were told in SWIG's words, without the value, and texts with a NUL were cut there.
def test_arguments_of_other_kinds_are_told_in_words(tmp_path):
    """What was given, and what is expected, in place of SWIG's words."""
    wrong = ((lambda: nn.Linear("x", 2), TypeError, "'x', a str; expected an integer"),
             (lambda: accel.optim.SGD(nn.Linear(2, 2).parameters(), lr="x"), TypeError, "'x', a str; expected a number"),
             (lambda: capi.accel_load(3, None), TypeError, "3, a int; expected a text"),
             (lambda: capi.accel_load(str(tmp_path) + "\0x", None), ValueError, "expected a text without the character NUL"),
             (lambda: capi.accel_state_retain(3), TypeError, "state: expected a accel_state_t"),
             (lambda: setattr(capi.accel_adam_options_t(), "lr", "x"), TypeError, "'x', a str; expected a number"),
             (lambda: capi.accel_status_name(2 ** 40), OverflowError, "1099511627776; expected an integer in the range of"))
    for call, kind, text in wrong:
        with pytest.raises(kind) as caught:
            call()
        assert text in str(caught.value) and "in method" not in str(caught.value), caught.value
