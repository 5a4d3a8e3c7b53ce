# SPDX-License-Identifier: Apache-2.0
"""Datasets, orders and loaders on one rank; test_ranks.py has several."""

import copy
import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

import accel
from accel import (DataLoader, Dataset, IterableDataset, Subset, TensorDataset, TextDataset, data, errors, ops, skip_first_batches)


class Squares(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"x": accel.tensor([float(index)]), "y": index * index, "name": str(index)}


def test_engine_datasets(tmp_path):
    dataset = TensorDataset(accel.arange(6).reshape(3, 2), accel.arange(3))
    assert len(dataset) == 3 and [item.tolist() for item in dataset[-1]] == [[4, 5], 2] and len(list(dataset)) == 3
    assert len(Subset(dataset, 1, 3)) == 2
    (tmp_path / "book.txt").write_text("hello world")
    text = TextDataset(tmp_path / "book.txt", 5)
    assert bytes(text[0][0].tolist()) == b"hello" and bytes(text[0][1].tolist()) == b"ello "
    for wrong in (lambda: dataset[3], lambda: TextDataset(tmp_path / "absent", 5), lambda: TensorDataset(accel.ones(2), accel.ones(3)),
                  lambda: Subset(dataset, 2, 9)):
        with pytest.raises((LookupError, ValueError)):
            wrong()


def test_loaders():
    loader = DataLoader(TensorDataset(accel.arange(5)), batch_size=2)
    assert len(loader) == 3 and [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert len(DataLoader(TensorDataset(accel.arange(5)), batch_size=2, drop_last=True)) == 2
    first, second = ([number for batch in DataLoader(TensorDataset(accel.arange(50)), 8, shuffle=True, seed=3) for number in batch[0].tolist()]
                     for _ in range(2))
    assert first == second and sorted(first) == list(range(50)) and first != sorted(first)
    loader = DataLoader(TensorDataset(accel.arange(50)), 50, shuffle=True)
    assert next(iter(loader))[0].tolist() == next(iter(loader))[0].tolist()  # left early: the epoch begins again
    epochs = [[batch[0].tolist() for batch in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]


def test_items_of_python():
    loader = DataLoader(Squares(5), batch_size=2)
    batches = list(loader)
    assert batches[1]["x"].tolist() == [[2], [3]] and batches[1]["y"].tolist() == [4, 9] and batches[2]["name"] == ["4"]
    assert list(DataLoader([1, 2, 3], 3))[0].tolist() == [1, 2, 3] and list(DataLoader([(1, 2.5)], 1))[0][1].tolist() == [2.5]
    assert list(DataLoader(Squares(3), 3, collate_fn=lambda items: [item["y"] for item in items])) == [[0, 1, 4]]

    class Broken(Squares):
        def __getitem__(self, index):
            raise KeyError(index)

    with pytest.raises(KeyError):
        list(DataLoader(Broken(2)))
    with pytest.raises(errors.KindError, match="one structure"):
        list(DataLoader([[1], [1, 2]], 2))


def test_state_and_skipping():
    loader = DataLoader(Squares(6), batch_size=2)
    iterator = iter(loader)
    next(iterator)
    kept = loader.state_dict()
    other = DataLoader(Squares(6), batch_size=2)
    other.load_state_dict(kept)
    assert [batch["y"].tolist() for batch in other] == [[4, 9], [16, 25]] and len(list(other)) == 3
    assert [batch["y"].tolist() for batch in skip_first_batches(DataLoader(Squares(6), 2), 2)] == [[16, 25]]


class Backwards(data.Sampler):
    def __init__(self, length):
        self.length = length
        super().__init__()

    def __len__(self):
        return self.length

    def order(self, epoch):
        return range(self.length - 1, -1, -1) if epoch == 0 else range(self.length)


def test_samplers():
    assert list(data.SequentialSampler(range(3))) == [0, 1, 2] and sorted(data.SeedableRandomSampler(range(9), 5)) == list(range(9))
    assert len(data.RandomSampler(range(3), replacement=True, num_samples=10)) == 10
    assert set(data.WeightedRandomSampler([0, 1, 1], 8)) <= {1, 2} and sorted(data.SubsetRandomSampler([4, 7])) == [4, 7]
    assert list(data.DistributedSampler(range(4), 2, 1, shuffle=False)) == [1, 3]
    assert sorted(data.LengthGroupedSampler(2, [5, 1, 4, 2])) == [0, 1, 2, 3]
    loader = DataLoader(Squares(3), batch_size=3, sampler=Backwards(3))
    assert [batch["y"].tolist() for _ in range(2) for batch in loader] == [[4, 1, 0], [0, 1, 4]]

    class Wrong(Backwards):
        def order(self, epoch):
            return [0]

    with pytest.raises(ValueError, match="gave 1 numbers; its length is 3"):
        list(Wrong(3))
    with pytest.raises(ValueError, match="not both"):
        DataLoader([1], shuffle=True, sampler=Backwards(1))
    with pytest.raises(TypeError, match="expected a Sampler"):
        DataLoader([1], sampler=[0])


class Countdown(IterableDataset):
    def __init__(self, length):
        self.length, self.epoch = length, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for number in range(self.length, 0, -1):
            yield number + 100 * self.epoch


def test_streams():
    loader = DataLoader(Countdown(5), batch_size=2)
    assert [batch.tolist() for _ in range(2) for batch in loader] == [[5, 4], [3, 2], [1], [105, 104], [103, 102], [101]]
    with pytest.raises(TypeError, match="does not say"):
        len(loader)
    assert list(DataLoader(data.MergedDataset([Countdown(1), Countdown(1)], end="all"), 2))[0].tolist() == [1, 1]

    class Breaks(IterableDataset):
        def __iter__(self):
            yield 1
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(DataLoader(Breaks()))
    with pytest.raises(TypeError, match="is not a dataset"):
        DataLoader(object())


def test_workers_and_batches_of_items():
    class Together(Squares):
        def __getitems__(self, indices):
            return [self[index] for index in indices]

    for dataset in (Squares(40), Together(40)):
        for num_workers in (0, 1, 3):
            batches = DataLoader(dataset, batch_size=4, num_workers=num_workers, prefetch_factor=2, collate_fn=lambda items: items[0]["y"])
            assert list(batches) == [number * number for number in range(0, 40, 4)]
    left_early = iter(DataLoader(Squares(400), batch_size=1, num_workers=3))
    next(left_early)
    del left_early  # its threads end, though they may be in a callback

    class Broken(Squares):
        def __getitem__(self, index):
            raise KeyError(index)

    with pytest.raises(KeyError):
        list(DataLoader(Broken(4), num_workers=2))


# Regression: a garbage collection in a worker's callback that released the loader aborted.
def test_garbage_collection_in_a_worker_releases_its_own_loader():
    left, ended = threading.Event(), threading.Event()

    class Rows(Squares):
        def __getitem__(self, index):
            if index == 1:  # read ahead
                left.wait()
                gc.collect()
            return index

        def __del__(self):
            ended.set()

    gc.disable()
    try:
        loader = DataLoader(Rows(9), batch_size=1, num_workers=1)
        loader.itself = loader  # a cycle: only the collector finds that nobody uses it
        for _ in loader:
            break
        del loader
        left.set()
        assert ended.wait(60)
    finally:
        gc.enable()


def test_padding_and_batch_samplers():
    rows = [accel.arange(length) for length in (1, 3, 2)]
    values, mask = next(iter(DataLoader([[row] for row in rows], 3, collate="pad", padding_value=9, padding_masks=True)))
    assert values.tolist() == [[0, 9, 9], [0, 1, 2], [0, 1, 9]] and mask.sum().item() == 6
    left = next(iter(DataLoader(rows, 3, collate="pad", padding_side="left", pad_to_multiple_of=4)))
    assert left.tolist()[0] == [0, 0, 0, 0] and left.shape == (3, 4)
    batches = DataLoader(Squares(4), batch_sampler=[[3], [0, 1, 2]])
    assert [batch["y"].tolist() for batch in batches] == [[9], [0, 1, 4]]
    for wrong in (lambda: DataLoader([1], batch_sampler=[[0]], batch_size=1), lambda: DataLoader([1], mystery=1)):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_readers(tmp_path):
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    (tmp_path / "rows.jsonl").write_text('{"x": [1, 2]}\nbroken\n')
    (tmp_path / "rows.csv").write_text("name;size\na;1\nb;2\n")
    assert list(data.LinesDataset(tmp_path / "lines.txt")) == ["one", "two"]
    rows = data.JsonLinesDataset(tmp_path / "rows.jsonl", skip_malformed=True)
    assert rows[0]["x"].tolist() == [1, 2] and rows.num_skipped == 1
    assert list(data.CsvDataset(tmp_path / "rows.csv", delimiter=";"))[1] == {"name": "b", "size": 2}
    typed = data.CsvDataset(tmp_path / "rows.csv", delimiter=";", types={"size": accel.float32, "name": "text"}, missing=-1)
    assert typed[0]["name"] == "a" and typed[0]["size"].dtype == "float32"
    with pytest.raises(ValueError, match="float7"):
        data.CsvDataset(tmp_path / "rows.csv", delimiter=";", types={"size": "float7"})
    stream = TensorDataset(accel.arange(4)).as_stream(seed=1)
    assert sorted(item[0].item() for item in DataLoader(data.MergedDataset([stream]), collate_fn=lambda items: items[0])) == [0, 1, 2, 3]
    accel.save({"x": accel.arange(3)}, tmp_path / "x.safetensors")
    assert data.SafetensorsDataset(tmp_path / "x.safetensors")[2]["x"].item() == 2
    (tmp_path / "tokens.bin").write_bytes(bytes(accel.arange(9).to("uint8").tolist()))
    tokens = data.map_file(tmp_path / "tokens.bin", "uint8")
    assert [part.tolist() for part in data.WindowsDataset(tokens, 4)[1]] == [[4, 5, 6, 7], [5, 6, 7, 8]]
    packed = data.PackedDataset(tokens, 4, document_offsets=[0, 3, 9], packing="best_fit")
    assert len(packed[0]) == 4 and packed[0][0].shape == (4,)
    assert data.RaggedDataset(accel.arange(4), [0, 1, 4])[1][0].tolist() == [1, 2, 3]
    assert TensorDataset({"x": accel.arange(2)})[1]["x"].item() == 1
    assert data.ConcatDataset([Squares(2), Squares(3)])[4]["y"] == 4 and len(Subset(Squares(5), 1, 3)) == 2
    with pytest.raises(errors.FileError, match="broken|line|row"):
        data.JsonLinesDataset(tmp_path / "rows.jsonl")[1]
    assert ops.allclose(accel.load(tmp_path / "x.safetensors")["x"], accel.arange(3))


def rows(loader):
    return [batch.tolist() for batch in loader]


# Regression: two loops over one loader shared its place: nested loops never ended, `zip(loader, loader)` lost batches.
def test_iterators_have_places_of_their_own(accelerator):
    for loader in (DataLoader(list(range(8)), batch_size=2), accelerator.prepare(DataLoader(list(range(8)), batch_size=2))):
        assert sum(1 for _ in loader for _ in loader) == 16
        assert [[left.tolist(), right.tolist()] for left, right in zip(loader, loader)] == [[[row, row + 1]] * 2 for row in range(0, 8, 2)]
        one, other = iter(loader), iter(loader)
        assert [next(one).tolist(), next(other).tolist(), next(one).tolist(), next(one).tolist(), next(other).tolist()] == [
            [0, 1], [0, 1], [2, 3], [4, 5], [2, 3]]
        del one, other
        assert len(rows(loader)) == 4
        skipping = skip_first_batches(loader, 1)
        assert sum(1 for _ in skipping for _ in skipping) == 3 + 4 + 4  # later epochs are whole
    stream = DataLoader(Countdown(3))
    assert sum(1 for _ in stream for _ in stream) == 9


def test_each_completed_iteration_is_an_epoch():
    loader, again = (DataLoader(list(range(50)), batch_size=50, shuffle=True, seed=1) for _ in range(2))
    epochs = [rows(again) for _ in range(4)]
    outer = iter(loader)
    assert [next(outer).tolist()] == epochs[0] and rows(loader) == epochs[0] and rows(loader) == epochs[1]
    assert list(outer) == [] and loader.epoch == 3 and rows(loader) == epochs[3]
    outer = iter(loader)
    next(outer)
    rows(loader)
    del outer  # left early
    assert loader.epoch == 5


def test_the_running_loaders(accelerator):
    state = accelerator.gradient_state
    outer, inner = (accelerator.prepare(DataLoader([1, 2])) for _ in range(2))
    assert not state.in_dataloader and state.active_dataloader is None
    for _ in outer:
        assert state.active_dataloader is outer
        for _ in inner:
            assert state.active_dataloader is inner and state.dataloader_references == [outer, inner]
        assert state.active_dataloader is outer
    assert not state.in_dataloader and state.dataloader_references == []


# Regression: prepared loaders of accel had no `end_of_dataloader`, `remainder` and `iteration`.
def test_prepared_loaders_tell_of_their_loops(accelerator):
    """end_of_dataloader, remainder and iteration, by the names of Accelerate."""
    loader, inner = accelerator.prepare(DataLoader(list(range(5)), batch_size=2), DataLoader([1, 2]))
    assert (loader.end_of_dataloader, loader.remainder, loader.iteration) == (False, -1, 0)
    seen = []
    for _ in loader:
        list(inner)  # another loop inside does not change what this one tells
        seen.append((loader.end_of_dataloader, loader.remainder))
    assert seen == [(False, 1), (False, 1), (True, 1)] and loader.end_of_dataloader and inner.end_of_dataloader
    assert loader.iteration == loader.epoch == 1
    next(iter(loader))
    assert not loader.end_of_dataloader
    loader.iteration = 7
    assert loader.epoch == 7
    for name, text in (("begin", "begins with iter"), ("end", "ends with its batches"), ("reset", "begins with iter"), ("get_sampler", "`sampler` is"),
                       ("set_sampler", "make a DataLoader"), ("unknown", "no attribute 'unknown'")):
        assert not hasattr(loader, name)
        with pytest.raises(AttributeError, match=text):
            getattr(loader, name)


# Regression: `non_blocking` without `pin_memory` was warned of in the engine's log only, and of loaders of torch not at all.
def test_copies_that_block_are_warned_of(accelerator):
    accelerator.dataloader_config.non_blocking = True
    with pytest.warns(UserWarning, match="non_blocking=True for a loader without pin_memory"):
        accelerator.prepare(DataLoader([1, 2], pin_memory=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accelerator.prepare(DataLoader([1, 2]))  # in page-locked memory by default
        accelerator.prepare_data_loader(DataLoader([1, 2]), device_placement=False)  # the host's batches are not copied
        accelerator.prepare(DataLoader([1, 2], pin_memory=True))


def test_datasets_hear_of_the_epoch(accelerator):
    """As a prepared loader of Accelerate: set_epoch() before each epoch, and what it returns does not count."""
    class Epochs(Dataset):
        heard = []

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return 10 * self.heard[-1] + index

        def set_epoch(self, epoch):
            self.heard.append(epoch)
            return self

    loader = accelerator.prepare(DataLoader(Epochs(), batch_size=2))
    assert [batch.tolist() for _ in range(2) for batch in loader] == [[0, 1], [10, 11]]
    loader.set_epoch(7)
    assert [batch.tolist() for batch in loader] == [[70, 71]] and Epochs.heard == [0, 1, 7]

    class Broken(Epochs):
        def set_epoch(self, epoch):
            raise KeyError(epoch)

    with pytest.raises(KeyError, match="0"):
        next(iter(DataLoader(Broken())))


def test_totals_of_prepared_loaders(accelerator):
    loader = accelerator.prepare(DataLoader([1, 2, 3], batch_size=2))
    assert loader.total_batch_size == 2 and loader.total_dataset_length == 3
    any_size = accelerator.prepare(DataLoader([1, 2, 3], batch_sampler=[[0], [1, 2]]))
    assert any_size.total_batch_size is None and any_size.total_dataset_length == 3
    with pytest.raises(TypeError, match="does not say"):
        accelerator.prepare(DataLoader(iter([1, 2]))).total_dataset_length


def test_numbers_of_both_kinds():
    assert rows(DataLoader([1, 2.5], 2)) == [[1, 2.5]] and next(iter(DataLoader([1, 2.5], 2))).dtype == "float32"
    assert rows(DataLoader([1.5, 2], 2)) == [[1.5, 2]] and next(iter(DataLoader([1.5, 2], 2))).dtype == "float64"
    assert next(iter(DataLoader([1, 2], 2))).dtype == "int64"
    with pytest.raises(errors.KindError, match="one structure"):
        rows(DataLoader([1, "text"], 2))


# Regression: `Subset` took ranges only.
def test_subsets_by_numbers():
    for dataset in (Squares(9), TensorDataset(accel.arange(9))):
        part = Subset(dataset, [7, 1, 1])
        assert len(part) == 3 and part.indices == [7, 1, 1] and part.dataset is dataset
        batch = next(iter(DataLoader(part, 3)))
        assert (batch["y"] if isinstance(batch, dict) else batch[0]).tolist() in ([49, 1, 1], [7, 1, 1])
    assert [item["y"] for item in Subset(Squares(9), range(2, 4))] == [4, 9]
    for wrong in ([9], [0.5]):
        with pytest.raises((IndexError, TypeError)):
            Subset(Squares(9), wrong)


# Regression: loaders could not be copied or pickled.
def test_copies_of_loaders(accelerator):
    loader = DataLoader(list(range(6)), batch_size=2, shuffle=True, seed=3, drop_last=True)
    iterator = iter(loader)
    next(iterator)
    for copied in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        rest = DataLoader(list(range(6)), batch_size=2, shuffle=True, seed=3, drop_last=True)
        rest.load_state_dict(loader.state_dict())
        assert rows(copied) == rows(rest) and len(rows(copied)) == 3 and copied.drop_last
    with pytest.raises(TypeError, match="belongs to its job"):
        copy.deepcopy(accelerator.prepare(loader))


def test_wrong_settings():
    for wrong, kind in (({"seed": -1}, ValueError), ({"seed": 1.5}, TypeError), ({"num_workers": -1}, ValueError)):
        with pytest.raises(kind, match=next(iter(wrong))):
            DataLoader([1, 2], **wrong)


# Regression: more workers than the process can start ended it.
# Regression: a thread that could not be started was an internal error.
def test_too_many_workers():
    """What the process cannot start is an error, and the process goes on."""
    code = """
        import resource
        from accel import DataLoader, errors
        loader = DataLoader(list(range(8)), batch_size=2)
        list(loader)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
        try:
            list(DataLoader(list(range(8)), batch_size=2, num_workers=2000))
        except errors.OutOfMemoryError as error:
            assert "num_workers is 2000" in str(error), error
            print(len(list(loader)))
        """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "4\n", ended.stderr


# Regression: items of bytes were an error.
def test_items_of_bytes(accelerator):
    items = [(bytes(range(256)), 1), (b"", 2), (b"\xef\xb7\x90", 3)]
    batch = next(iter(DataLoader(items, 3)))
    assert batch[0] == [item[0] for item in items] and batch[1].tolist() == [1, 2, 3]
    assert next(iter(DataLoader(items, 3, collate_fn=lambda items: [items[0][0], b"more"]))) == [items[0][0], b"more"]
    assert accelerator.gather_for_metrics([b"a\0b"], use_gather_object=True) == [b"a\0b"]
