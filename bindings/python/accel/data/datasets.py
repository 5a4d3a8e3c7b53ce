# SPDX-License-Identifier: Apache-2.0
"""Datasets of tensors, and of items of others, beside those that the engine reads itself."""

import operator
from collections.abc import Mapping

from .. import capi
from ..engine.values import to_engine
from ..tensors import dtypes
from ..tensors.creation import as_tensor
from .dataset import EngineDataset, handle_of


class TensorDataset(EngineDataset):
    """Rows of tensors; an item is a list with one row of each, or of a dict of tensors a dict."""

    def __init__(self, *tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Mapping):
            super().__init__(capi.accel_dataset_named_tensors(to_engine(tensors[0])))
        else:
            super().__init__(capi.accel_dataset_tensors([as_tensor(part) for part in tensors]))


class Subset(EngineDataset):
    """Some items of a dataset: Subset(dataset, [4, 7, 1]) has those of these numbers, Subset(dataset, begin, end) a range."""

    def __init__(self, dataset, indices, end=None):
        self.dataset = dataset
        if end is not None:
            self.indices = range(indices, end)
            super().__init__(capi.accel_dataset_subset(handle_of(dataset), indices, end))
        else:
            self.indices = indices
            super().__init__(handle_of(_Chosen(dataset, [operator.index(index) for index in indices])))

    def __reduce__(self):
        return Subset, (self.dataset, list(self.indices))


class _Chosen:
    """Items of a dataset by a list of numbers."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices
        wrong = next((index for index in indices if not -len(dataset) <= index < len(dataset)), None)
        if wrong is not None:
            raise IndexError(f"indices has {wrong}, and the dataset {len(dataset)} items")
        if hasattr(dataset, "__getitems__"):
            self.__getitems__ = lambda places: dataset.__getitems__([indices[place] for place in places])

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, place):
        return self.dataset[self.indices[place]]


def map_file(path, dtype=None):
    """A .npy file, or a file of bare numbers of a dtype, as a tensor that shares the mapped file."""
    return capi.accel_tensor_map_file(str(path), capi.ACCEL_UNSET if dtype is None else dtypes.dtype(dtype).number)
