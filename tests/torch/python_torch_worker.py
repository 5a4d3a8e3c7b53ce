# SPDX-License-Identifier: Apache-2.0
"""Loads torch and libaccel in a given order, and computes the same gradient with both on one memory.

usage: python_torch_worker.py LIBACCEL torch|accel

Runs in a Python that has torch. Any failure ends it with an exception.
"""

import ctypes
import os
import sys

LABELS = [0, 2, 1]
VERSIONED = b"dltensor_versioned"


class Accel:
    """The few functions of libaccel that are needed here; a negative status is an exception."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.accel_last_error.restype = ctypes.c_char_p
        self.library.accel_debug_live_objects.restype = ctypes.c_int64

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status < 0:
            raise RuntimeError(f"{name}: {self.library.accel_last_error().decode()}")

    def make(self, name, *arguments):
        """The handle that a function gives as its last argument."""
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def take(self, tensor):
        """A handle on the memory of a torch tensor."""
        capsule = tensor.__dlpack__(max_version=(1, 0))
        ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
        pointer = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(capsule), VERSIONED)
        ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_" + VERSIONED)
        return self.make("accel_tensor_from_dlpack", ctypes.c_void_p(pointer))

    def give(self, torch, handle):
        """A torch tensor on the memory of a handle."""
        pointer = self.make("accel_tensor_to_dlpack", handle)
        ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
        return torch.from_dlpack(ctypes.pythonapi.PyCapsule_New(pointer, VERSIONED, None))

    def release(self, *handles):
        for handle in handles:
            self.library.accel_tensor_release(handle)


def gradient_of_torch(torch, logits):
    logits = logits.clone().requires_grad_()
    torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS)).backward()
    return logits.grad


def gradient_of_accel(torch, accel, logits):
    scores, labels = accel.take(logits), accel.take(torch.tensor(LABELS))
    accel.call("accel_tensor_set_requires_grad", scores, 1)
    loss = accel.make("accel_cross_entropy", scores, labels)
    accel.call("accel_tensor_backward", loss, None)
    gradient = accel.make("accel_tensor_grad", scores)
    result = accel.give(torch, gradient)
    accel.release(scores, labels, loss, gradient)
    return result


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


def check_host_keeps_kernels_and_memory(torch, accel):
    """torch's own products have the same bits beside a state that routes its own through oneDNN."""
    left, right = torch.randn(512, 512), torch.randn(512, 512)
    before = left @ right
    os.environ.update(ACCEL_CPU_KERNELS="onednn", ACCELERATE_USE_CPU="true")
    state = accel.make("accel_state_create", None)
    text = Buffer()
    accel.call("accel_state_describe", state, ctypes.byref(text))
    described = text.data.decode()
    assert "float32 products = oneDNN" in described, described
    assert "memory of large CPU tensors = the C library's" in described, described
    assert torch.equal(left @ right, before), "a product of torch changed"
    accel.library.accel_buffer_dispose(ctypes.byref(text))
    accel.library.accel_state_release(state)


def loaded_files():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return {line.rstrip("\n").split(maxsplit=5)[-1] for line in maps if line.rstrip().endswith("/libtorch_cpu.so")}


def first_call(accel):
    """Any call that makes something; it is where another LibTorch is refused."""
    accel.release(accel.make("accel_tensor_empty", None, ctypes.c_size_t(0), ctypes.c_int32(7), ctypes.byref((ctypes.c_int32 * 2)(0, 0))))


def load(path, first):
    if first == "torch":
        import torch
    accel = Accel(path)
    first_call(accel)
    import torch
    return torch, accel


def main():
    torch, accel = load(*sys.argv[1:])
    logits = torch.arange(12, dtype=torch.float32).reshape(3, 4).sin()
    given = accel.take(logits)
    back = accel.give(torch, given)
    assert back.data_ptr() == logits.data_ptr(), "the memory was copied"
    accel.release(given)
    expected, found = gradient_of_torch(torch, logits), gradient_of_accel(torch, accel, logits)
    assert torch.equal(expected, found), f"gradients differ: {expected} and {found}"
    check_host_keeps_kernels_and_memory(torch, accel)
    assert len(loaded_files()) == 1, f"several LibTorchs are loaded: {loaded_files()}"
    assert accel.library.accel_debug_live_objects() == 0, "a handle was not released"
    print("one LibTorch, same gradients on both sides")


if __name__ == "__main__":
    main()
