# SPDX-License-Identifier: Apache-2.0
"""Seed and epoch of the sampler that Accelerate pickles into `sampler.bin`, without running what the pickle names."""

import io
import pickle
import zipfile


class _Inert:
    """Stands for every object of the pickle: keeps the attributes it is given, and does nothing."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return self

    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key, value):
        pass

    def append(self, item):
        pass

    def extend(self, items):
        pass

    def add(self, item):
        pass


class _Reader(pickle.Unpickler):
    def find_class(self, module, name):
        return type(name, (_Inert,), {})

    def persistent_load(self, pid):
        return _Inert()


def seed_and_epoch(path):
    """Seed and epoch of the SeedableRandomSampler in a file of torch.save(). A ValueError for anything else."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(names) != 1:
            raise ValueError(f"{path} has {len(names)} pickles; expected one, of torch.save()")
        sampler = _Reader(io.BytesIO(archive.read(names[0]))).load()
    found = tuple(getattr(sampler, name, None) for name in ("initial_seed", "epoch"))
    if not all(type(number) is int for number in found):
        raise ValueError(f"{path} holds a {type(sampler).__name__} without initial_seed and epoch; expected a SeedableRandomSampler")
    return found
