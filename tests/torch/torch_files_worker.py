# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save() are read by libaccel, and what it writes is read by torch.load(weights_only=True): values of all kinds, both
layouts, every protocol.

usage: torch_files_worker.py LIBACCEL

Runs in a Python that has torch and NumPy. Any failure ends it with an exception.
"""

import collections
import ctypes
import os
import random
import sys
import tempfile
import warnings
import zipfile

import numpy
import torch

DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool", "bfloat16",
          "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "uint16", "uint32", "uint64")


class Value(ctypes.Structure):
    """accel_value_t"""
    _fields_ = [("kind", ctypes.c_int32), ("reserved", ctypes.c_uint32), ("content", ctypes.c_int64)]


class SaveOptions(ctypes.Structure):
    """accel_save_options_t"""
    _fields_ = [("struct_size", ctypes.c_size_t), ("safe_serialization", ctypes.c_int32), ("save_on_each_node", ctypes.c_int32)]


def check(library, status):
    if status < 0:
        raise RuntimeError(library.accel_last_error().decode())


def copy_by_accel(library, source, destination):
    """Reads one file and writes another."""
    value, options = Value(), SaveOptions(ctypes.sizeof(SaveOptions), 0, 0)
    check(library, library.accel_load(source.encode(), None, ctypes.byref(value)))
    check(library, library.accel_save(ctypes.byref(value), None, destination.encode(), ctypes.byref(options)))
    library.accel_value_dispose(ctypes.byref(value))


def same(one, other):
    """Whether what came back is what was saved; arrays come back as tensors, sets as lists."""
    if isinstance(one, numpy.ndarray):
        one = torch.from_numpy(one.copy())
    if torch.is_tensor(one):
        bits = [tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return type(other) is (list if isinstance(one, list) else tuple) and len(one) == len(other) and all(map(same, one, other))
    return one == other and isinstance(other, type(one.item() if isinstance(one, numpy.generic) else one))


def values():
    generator = torch.Generator().manual_seed(1)
    base = torch.randn(4, 6, generator=generator)
    bits = torch.randint(0, 2, (32,), generator=generator, dtype=torch.uint8)
    model = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    model(base).sum().backward()
    optimizer.step()
    scheduler.step()
    yield "plain", {"none": None, "flags": [True, False], "integers": [0, -1, 255, 65536, -(2**31), 2**62], "numbers": [0.5, -1e300],
                    "text": ["", "é漢😀", "x" * 300], "tuple": (1, (2, ())), 7: {"deep": [[[]]]}, "bytes": bytes(range(256))}
    yield "views", [base, base.t(), base[1:, ::2], base[0].expand(3, 6), torch.empty(0, 3), torch.tensor(1.5), base[2:].clone()]
    yield "dtypes", {name: bits.bool() if name == "bool" else bits.view(getattr(torch, name)).clone() for name in DTYPES}
    yield "numpy", {"array": numpy.arange(6, dtype=numpy.uint32).reshape(2, 3), "scalar": numpy.float64(2.5), "flag": numpy.bool_(True)}
    yield "model", model.state_dict()
    yield "optimizer", optimizer.state_dict()
    yield "scheduler", {key: value for key, value in scheduler.state_dict().items() if not callable(value)}
    yield "random", {"python": random.getstate(), "numpy": numpy.random.get_state(), "torch": torch.get_rng_state()}
    yield "many", collections.OrderedDict((f"layer.{i}.weight", torch.full((3,), float(i))) for i in range(1200))
    yield "alone", base


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.accel_last_error.restype = ctypes.c_char_p
    warnings.simplefilter("ignore")
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        source, destination = os.path.join(folder, "source.pt"), os.path.join(folder, "destination.pt")
        for name, value in values():
            for protocol in range(2, 6):
                for is_zip in (True, False):
                    if name == "dtypes" and not is_zip:
                        continue  # that layout has no storages of float8
                    torch.save(value, source, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
                    copy_by_accel(library, source, destination)
                    if not same(value, torch.load(destination, weights_only=True)):
                        raise RuntimeError(f"'{name}', protocol {protocol}, zip {is_zip}: another value came back")
                    if not same(value, torch.load(destination, weights_only=True, mmap=True)):
                        raise RuntimeError(f"'{name}', protocol {protocol}, zip {is_zip}: another value came back by mmap")
                    with zipfile.ZipFile(destination) as archive:
                        if archive.testzip() is not None:
                            raise RuntimeError(f"'{name}': a wrong checksum")
                    count += 1
        shared = torch.load(destination, weights_only=True)
        torch.save([shared, shared.t()], source)
        copy_by_accel(library, source, destination)
        one, other = torch.load(destination, weights_only=True)
        if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
            raise RuntimeError("tensors do not share their storage any more")
    print(f"{count} files of torch came back")


if __name__ == "__main__":
    main()
