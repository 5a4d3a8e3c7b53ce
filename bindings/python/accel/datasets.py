"""Datasets: Python objects with items, and those that the engine reads itself."""

import operator
from collections.abc import Mapping

from . import capi, dtypes
from .creation import as_tensor
from .handlers import fill
from .objects import packed_item
from .values import to_engine

_UNSET = capi.ACCEL_UNSET_INT64


class Dataset:
    """Items by number. Subclasses have `__len__()` and `__getitem__(index)`; with `__getitems__(indices)` they make those of a batch, and
    `set_epoch(epoch)` hears of the epoch that a loader begins."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__()")


class IterableDataset:
    """Items one after another. Subclasses have `__iter__()`, and where they like `__len__()` and `set_epoch(epoch)`."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __iter__()")


class EngineDataset(Dataset):
    """A dataset that the engine reads."""

    def __init__(self, handle):
        self.handle = handle

    def __len__(self):
        length = capi.accel_dataset_length(self.handle)
        if length < 0:
            raise TypeError("a stream does not say how many items it has")
        return length

    def __getitem__(self, index):
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"item {index} of {length}")
        return capi.accel_dataset_item(self.handle, index % length)

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def as_stream(self, seed=None):
        """The same items one after another, in a new order every epoch with a seed: for merge()."""
        return EngineDataset(capi.accel_dataset_as_stream(self.handle, _UNSET if seed is None else seed))

    @property
    def num_skipped(self):
        """Malformed rows, and files that are no images, that were left out."""
        return capi.accel_dataset_num_skipped(self.handle)

    def __repr__(self):
        length = capi.accel_dataset_length(self.handle)
        return f"{type(self).__name__}({'a stream' if length < 0 else f'{length} items'})"


def handle_of(dataset):
    """The engine's dataset for any dataset of Python: what it has itself, items by number, or a stream."""
    if isinstance(dataset, EngineDataset):
        return dataset.handle
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        many = getattr(dataset, "__getitems__", None)
        return capi.accel_dataset_create((lambda: len(dataset), lambda index: packed_item(dataset[index]),
                                          None if many is None else lambda indices: [packed_item(item) for item in many(indices)],
                                          _set_epoch_of(dataset) if hasattr(dataset, "set_epoch") else None))
    if hasattr(dataset, "__iter__"):
        length = len(dataset) if hasattr(dataset, "__len__") else _UNSET
        return capi.accel_dataset_create_stream(_Readers(dataset).callbacks(), length, 1)
    raise TypeError(f"a {type(dataset).__name__} is no dataset: expected __len__ and __getitem__, or __iter__")


def _set_epoch_of(dataset):
    def set_epoch(epoch):
        dataset.set_epoch(epoch)  # whatever it returns

    return set_epoch


class _Readers:
    """The iterators over a Python object that are open, by number."""

    def __init__(self, dataset):
        self.dataset, self.open, self.made = dataset, {}, 0

    def callbacks(self):
        return self.begin, self.next, None, self.end

    def begin(self, epoch, shard, num_readers):
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        self.made += 1
        self.open[self.made] = iter(self.dataset)
        return self.made

    def next(self, reader):
        return packed_item(next(self.open[reader]))

    def end(self, reader):
        del self.open[reader]


class TensorDataset(EngineDataset):
    """Rows of tensors; an item is a list with one row of each, or of a dict of tensors a dict."""

    def __init__(self, *tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Mapping):
            super().__init__(capi.accel_dataset_named_tensors(to_engine(tensors[0])))
        else:
            super().__init__(capi.accel_dataset_tensors([as_tensor(part) for part in tensors]))


class RaggedDataset(EngineDataset):
    """Rows of different lengths: entries [offsets[i], offsets[i + 1]) of each tensor."""

    def __init__(self, values, offsets):
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        super().__init__(capi.accel_dataset_ragged([as_tensor(part) for part in values], as_tensor(offsets)))


class SafetensorsDataset(EngineDataset):
    """Rows of the tensors of a safetensors file, which is mapped."""

    def __init__(self, path):
        super().__init__(capi.accel_dataset_safetensors(str(path)))


class TextDataset(EngineDataset):
    """The bytes of a file, or of all files below a folder, cut into windows of `sequence_length`: inputs, and the same shifted by one."""

    def __init__(self, path, sequence_length, suffix=None):
        super().__init__(capi.accel_dataset_text(str(path), suffix, sequence_length))


class WindowsDataset(EngineDataset):
    """Tokens cut into windows: inputs, and the same shifted by one. `map_file()` gives tokens of large files."""

    def __init__(self, tokens, sequence_length, stride=None):
        super().__init__(capi.accel_dataset_windows(as_tensor(tokens), sequence_length, _UNSET if stride is None else stride))


class PackedDataset(EngineDataset):
    """Documents packed into sequences: tokens, next tokens, positions, and numbers of documents. `packing` is "concatenate" or
    "best_fit"."""

    def __init__(self, tokens, sequence_length, end_of_document=None, document_offsets=None, packing=None, pad_token=None):
        kinds = {None: None, "concatenate": capi.ACCEL_PACKING_CONCATENATE, "best_fit": capi.ACCEL_PACKING_BEST_FIT}
        offsets = None if document_offsets is None else as_tensor(document_offsets)  # lives until the call is done
        options = fill(capi.accel_packing_options_t(), {"sequence_length": sequence_length, "end_of_document": end_of_document,
                                                        "document_offsets": offsets, "packing": kinds[packing], "pad_token": pad_token})
        super().__init__(capi.accel_dataset_packed(as_tensor(tokens), options))


class LinesDataset(EngineDataset):
    """The lines of text files; an item is a str."""

    def __init__(self, path, suffix=None, skip_malformed=False):
        super().__init__(capi.accel_dataset_lines(str(path), suffix, int(skip_malformed)))


class JsonLinesDataset(EngineDataset):
    """Files with a JSON document on each line."""

    def __init__(self, path, suffix=None, skip_malformed=False):
        super().__init__(capi.accel_dataset_json_lines(str(path), suffix, int(skip_malformed)))


class CsvDataset(EngineDataset):
    """Files of comma-separated values; an item is a dict from columns to cells. `types` gives columns their
    dtype, or "text"; those of the others come from their first cells."""

    def __init__(self, path, suffix=None, delimiter=None, has_header=None, skip_malformed=None, missing=None, types=None):
        types = None if types is None else {column: str(kind) for column, kind in types.items()}
        options = fill(capi.accel_csv_options_t(), {"delimiter": None if delimiter is None else ord(delimiter), "has_header": has_header,
                                                    "skip_malformed": skip_malformed, "types": types,
                                                    "missing": None if missing is None else float(missing)})
        super().__init__(capi.accel_dataset_csv(str(path), suffix, options))


class ImageDataset(EngineDataset):
    """JPEG and PNG files: {"image": uint8 [channels, height, width], "label": the number of the subfolder, "path": ...}."""

    def __init__(self, folder, channels=None, height=None, width=None):
        options = fill(capi.accel_image_options_t(), {"channels": channels, "height": height, "width": width})
        super().__init__(capi.accel_dataset_images(str(folder), options))


class ArrowDataset(EngineDataset):
    """What has the Arrow stream interface (tables of pyarrow, polars, pandas, readers of Parquet); an item is a dict."""

    def __init__(self, table, null_value=None):
        null_value = capi.ACCEL_UNSET_DOUBLE if null_value is None else float(null_value)
        super().__init__(capi.accel_dataset_arrow_stream(table.__arrow_c_stream__(), null_value))


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


class ConcatDataset(EngineDataset):
    """Datasets one behind the other."""

    def __init__(self, datasets):
        super().__init__(capi.accel_dataset_concatenate([handle_of(dataset) for dataset in datasets]))


class MergedDataset(EngineDataset):
    """Several datasets as one stream, drawn by weight; it ends with the "first" or when "all" have ended."""

    def __init__(self, datasets, weights=None, seed=0, end="first"):
        ends = {"first": capi.ACCEL_MERGE_END_FIRST, "all": capi.ACCEL_MERGE_END_ALL}
        super().__init__(capi.accel_dataset_merge([handle_of(dataset) for dataset in datasets], weights, seed, ends[end]))


def map_file(path, dtype=None):
    """A .npy file, or a file of bare numbers of a dtype, as a tensor that lies in the mapped file."""
    return capi.accel_tensor_map_file(str(path), capi.ACCEL_UNSET if dtype is None else dtypes.dtype(dtype).number)
