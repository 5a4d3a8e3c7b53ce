# SPDX-License-Identifier: Apache-2.0
"""Loaders of torch, prepared: they stay torch's, and the ranks share their batches."""

import collections
import copy
import dataclasses
import gc
import importlib.util
import json
import pathlib
import pickle
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset,  # noqa: E402
                              WeightedRandomSampler, default_collate)

from accel import Accelerator, DataLoaderConfiguration  # noqa: E402
from accel.data_loader import (BatchSamplerShard, DataLoaderDispatcher, DataLoaderShard, DataLoaderStateMixin,  # noqa: E402
                               IterableDatasetShard, SeedableRandomSampler, SkipBatchSampler, SkipDataLoader, get_sampler,
                               prepare_data_loader, skip_first_batches)

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "tests" / "parity" / "fixtures"
needs_torchdata = pytest.mark.skipif(importlib.util.find_spec("torchdata") is None, reason="there is no torchdata")


def cases(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())["cases"]


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


class SizedStream(Stream):
    def __len__(self):
        return self.size


def numbers(kind, size):
    return {"map": lambda size: list(range(size)), "stream": Stream, "sized_stream": SizedStream}[kind](size)


def lists(batches):
    return [batch.tolist() for batch in batches]


# What the ranks get


class Batches:
    """A batch sampler with what a case says that it has."""

    def __init__(self, batches, **settings):
        self.batches = batches
        self.__dict__.update(settings)

    def __iter__(self):
        return iter([list(batch) for batch in self.batches])

    def __len__(self):
        return len(self.batches)


def batch_sampler_of(given):
    if given["sampler"] == "regular":
        return BatchSampler(range(given["size"]), given["batch_size"], given["drop_last"])
    return Batches(given["batches"], **({"drop_last": given["drop_last"]} if "drop_last" in given else {}))


def test_keys_of_sequences_are_refused():
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(sequence_keys="input_ids"))
    with pytest.raises(ValueError, match="sequence_keys is for loaders of accel: expected maybe_context_parallel"):
        accelerator.prepare(DataLoader(range(4)))


def test_batch_sampler_shard_as_the_reference():
    for case in cases("batch_sampler_shard"):
        given, expected = case["input"], case["expected"]

        def shards():
            return [BatchSamplerShard(batch_sampler_of(given), given["processes"], rank, given["split_batches"], given["even_batches"])
                    for rank in range(given["processes"])]

        if "error" in expected:
            with pytest.raises(ValueError):
                shards()
            continue
        assert [list(shard) for shard in shards()] == expected["batches"], case
        assert [len(shard) for shard in shards()] == expected["lengths"], case


@pytest.mark.parametrize("count", [2, 16, 19, 23])
def test_rows_are_shared_as_items_are(count):
    data = TensorDataset(torch.arange(count))
    for settings in ({}, {"drop_last": True}, {"shuffle": True}):
        for split, even in ((False, False), (False, True), (True, False), (True, True)):
            for rank in range(2):
                expected, found = [], []
                for dataset, batches in ((Same(data), expected), (data, found)):
                    torch.manual_seed(2)
                    loader = prepare_data_loader(DataLoader(dataset, batch_size=4, **settings), num_processes=2, process_index=rank,
                                                 split_batches=split, even_batches=even)
                    for loader in (loader, skip_first_batches(loader, 1)):
                        batches += [(batch[0].tolist(), loader.end_of_dataloader) for batch in loader]
                assert found == expected, (settings, split, even)


def test_a_short_batch_in_the_middle():
    batches = Batches([[0, 1], [2], [3, 4], [5, 6]], batch_size=2)
    assert [list(BatchSamplerShard(batches, 2, rank)) for rank in range(2)] == [[[0, 1], [3, 4]], [[2], [5, 6]]]
    with pytest.raises(ValueError, match="a batch of 1 items is not the last one"):
        list(BatchSamplerShard(batches, 2, 0, split_batches=True))


def test_iterable_dataset_shard_as_the_reference():
    for case in cases("iterable_dataset_shard"):
        given, expected = case["input"], case["expected"]
        if given["split_batches"] and given["batch_size"] % given["processes"]:
            with pytest.raises(ValueError, match="round multiple"):
                IterableDatasetShard(SizedStream(given["size"]), given["batch_size"], num_processes=given["processes"], split_batches=True)
            continue
        shards = [IterableDatasetShard(SizedStream(given["size"]), given["batch_size"], given["drop_last"], given["processes"], rank,
                                       given["split_batches"]) for rank in range(given["processes"])]
        assert [list(shard) for shard in shards] == expected["items"], case
        assert [len(shard) for shard in shards] == [len(items) for items in expected["items"]]  # which Accelerate does not know


def test_seedable_order_as_the_reference():
    for case in cases("seedable_sampler"):
        given, expected = case["input"], case["expected"]
        if given["kind"] != "seedable" or given["size"] == 0:
            continue
        sampler = SeedableRandomSampler(range(given["size"]), data_seed=given["data_seed"])
        sampler.set_epoch(given["set_epoch"])
        assert [list(sampler) for _ in range(given["passes"])] == expected["orders"], case
        assert sampler.epoch == expected["epoch_after"]


def test_prepared_loader_as_the_reference():
    for case in cases("prepare_data_loader"):
        given, expected = case["input"], case["expected"]
        if given["split_batches"] and given["batch_size"] % given["processes"]:
            continue
        for rank, wanted in enumerate(expected.get("ranks", [])):
            loader = DataLoader(numbers(given["dataset"], given["size"]), given["batch_size"], drop_last=given["drop_last"])
            loader = prepare_data_loader(loader, num_processes=given["processes"], process_index=rank,
                                         split_batches=given["split_batches"], even_batches=given["even_batches"])
            batches, ends = [], []
            for batch in loader:
                batches.append(batch.tolist())
                ends.append(loader.end_of_dataloader)
            assert (batches, ends) == (wanted["batches"], wanted["end_of_dataloader"]), case
            if isinstance(wanted["length"], int) and given["dataset"] == "map":
                assert len(loader) == wanted["length"]
                assert loader.total_batch_size == wanted["total_batch_size"]


def test_dispatcher_as_the_reference(ranks):
    for processes in (2, 3):
        given = [case for case in cases("dispatcher") if case["input"]["processes"] == processes]
        printed = ranks(f"""
            import json, sys
            sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
            from test_torch_loaders import Accelerator, DataLoader, DataLoaderConfiguration, numbers
            for case in json.loads({json.dumps(json.dumps(given))}):
                given = case["input"]
                accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True, split_batches=given["split_batches"]))
                if "error" in case["expected"] or given["split_batches"] and given["batch_size"] % given["processes"]:
                    continue
                loader = DataLoader(numbers(given["dataset"], given["size"]), given["batch_size"], drop_last=given["drop_last"])
                loader = accelerator.prepare(loader)
                wanted = case["expected"]["ranks"][accelerator.process_index]
                batches, ends = [], []
                for batch in loader:
                    batches.append(batch.tolist())
                    ends.append(accelerator.gradient_state.end_of_dataloader)
                    remainder = accelerator.gradient_state.remainder
                if "error" in wanted:
                    continue
                assert all(batches), case  # Accelerate hands out empty ones, which have no loss
                wanted["batches"] = [other or own for own, other in zip(batches, wanted["batches"], strict=True)]
                assert (batches, ends) == (wanted["batches"], wanted["end_of_dataloader"]), (case, batches)
                if batches:
                    assert remainder == wanted["remainder"], (case, remainder)
                if isinstance(wanted["length"], int):
                    assert len(loader) == wanted["length"], case
            print("done")
            """, processes)
        assert printed == ["done\n"] * processes


# A prepared loader is torch's


def test_is_torchs(accelerator):
    loader = DataLoader(list(range(10)), batch_size=4, num_workers=0)
    prepared = accelerator.prepare(loader)
    assert isinstance(prepared, DataLoader) and isinstance(prepared, DataLoaderShard) and isinstance(prepared, DataLoaderStateMixin)
    assert prepared.total_batch_size == 4 and prepared.dataset is loader.dataset and prepared.collate_fn is default_collate
    assert isinstance(prepared.base_dataloader, DataLoader) and len(prepared) == 3
    assert lists(prepared) == lists(loader) and lists(prepared) == lists(loader)
    assert accelerator.prepare(prepared) is prepared and accelerator._dataloaders == [prepared]
    with pytest.raises(AttributeError, match="no_such_name"):
        prepared.no_such_name


def test_what_cannot_be(accelerator):
    with pytest.raises(ValueError, match="put_on_device"):
        prepare_data_loader(DataLoader([1]), dispatch_batches=True)
    with pytest.raises(ValueError, match="round multiple of the 2 processes; it is 3"):
        prepare_data_loader(DataLoader(list(range(6)), batch_size=3), num_processes=2, process_index=0, split_batches=True)
    with pytest.raises(ValueError, match="has one"):
        prepare_data_loader(DataLoader(list(range(6)), batch_sampler=[[0, 1], [2, 3]]), num_processes=2, process_index=0, split_batches=True)


def test_loaders_of_the_programs_own_classes(accelerator):
    class Endless(DataLoader):
        def __iter__(self):
            while True:
                yield from super().__iter__()

    class Named(DataLoader):
        name = "train"

    with pytest.raises(TypeError, match="Endless has an __iter__.. of its own"):
        accelerator.prepare(Endless([1]))
    assert lists(accelerator.prepare(Named([1, 2]))) == [[1], [2]]


def test_items_that_are_no_batches(accelerator):
    rows = DataLoader([[1, 2], [3], [4]], batch_size=None, sampler=[2, 0, 1])
    assert list(accelerator.prepare(rows)) == [[4], [1, 2], [3]]
    assert list(skip_first_batches(rows, 1)) == list(skip_first_batches(accelerator.prepare(rows), 1)) == [[1, 2], [3]]
    with pytest.raises(ValueError, match="batch_size=None"):
        prepare_data_loader(rows, num_processes=2, process_index=0)
    batches = DataLoader([1, 2, 3], batch_size=None, sampler=BatchSampler(range(3), 2, False), collate_fn=keep)
    with pytest.raises(TypeError):  # a list cannot be read by lists of numbers
        list(accelerator.prepare(batches))


Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Record:
    x: torch.Tensor
    name: str


def test_classes_of_batches(accelerator):
    def batches(collate):
        return list(accelerator.prepare(DataLoader(list(range(4)), batch_size=2, collate_fn=collate)))

    assert [type(batch) for batch in batches(lambda items: Pair(torch.tensor(items), "y"))] == [Pair, Pair]
    record = batches(lambda items: Record(torch.tensor(items), "r"))[1]
    assert type(record) is Record and record.x.tolist() == [2, 3] and record.name == "r"
    ordered = batches(lambda items: collections.OrderedDict(b=torch.tensor(items), a=[1]))[0]
    assert type(ordered) is collections.OrderedDict and list(ordered) == ["b", "a"]


# Batches of rows of tensors are read without the items, and are torch's


def same(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right):
        assert type(one) is type(other)
        for x, y in zip(one, other):
            assert x.dtype == y.dtype and x.shape == y.shape and x.is_contiguous() == y.is_contiguous() and torch.equal(x, y)
            assert x.untyped_storage().nbytes() == x.nbytes


def tensors_of(count=23):
    torch.manual_seed(3)
    return TensorDataset(torch.randn(count, 3), torch.arange(count), torch.randn(count, 2, 2).bfloat16(), torch.rand(count) > 0.5)


class Same(Dataset):
    """The items of another dataset, of which nothing is known."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("settings", [
    {}, {"shuffle": True}, {"shuffle": True, "drop_last": True}, {"sampler": "weighted"}, {"sampler": "list"}, {"batch_sampler": "own"},
    {"sampler": "replacement"}, {"sampler": "few"}, {"shuffle": True, "generator": True}], ids=str)
@pytest.mark.parametrize("of_subset", [False, True])
def test_rows_of_tensors(accelerator, workers, settings, of_subset):
    dataset = tensors_of()
    if of_subset:
        dataset = Subset(Subset(dataset, list(range(20, 2, -1))), [0, 3, 3, 5, 17, -1, 2, 8])
    count = len(dataset)
    kinds = {"weighted": lambda: WeightedRandomSampler(torch.ones(count), count), "list": lambda: list(range(count - 1, -1, -1)),
             "own": lambda: [[0, 1, 2], [3, -1], [4]], "replacement": lambda: RandomSampler(range(count), replacement=True),
             "few": lambda: RandomSampler(range(count), num_samples=5)}

    def loader(data):
        made = {name: kinds[value]() if value in kinds else value for name, value in settings.items()}
        if "generator" in made:
            made["generator"] = torch.Generator().manual_seed(8)
        return DataLoader(data, num_workers=workers, **made, **({} if "batch_sampler" in made else {"batch_size": 4}))

    torch.manual_seed(11)
    expected = [list(data) for data in [loader(Same(dataset))] for _ in range(2)]
    after = torch.rand(1)
    torch.manual_seed(11)
    prepared = accelerator.prepare(loader(dataset))
    found = [list(prepared) for _ in range(2)]
    assert torch.rand(1) == after  # the same random numbers were drawn
    for epoch in range(2):
        same(found[epoch], expected[epoch])


def test_rows_that_only_torch_reads(accelerator):
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(2 * part for part in super().__getitem__(index))

    assert lists(next(iter(accelerator.prepare(DataLoader(Doubled(torch.arange(4)), batch_size=2))))) == [[0, 2]]
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(4)), batch_size=2, collate_fn=len))
    assert list(loader) == [2, 2]
    with pytest.raises(IndexError):
        list(accelerator.prepare(DataLoader(TensorDataset(torch.arange(4)), sampler=[1, 4])))


# Workers


class Large(Dataset):
    """Items of many kinds, with random numbers of the worker."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"index": index, "random": torch.rand(2), "large": torch.full((300, 300), float(index)), "text": str(index), "none": None,
                "half": torch.full((), index, dtype=torch.bfloat16), "empty": torch.empty(0, 3)}


def keep(items):
    return items


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("collate", [None, keep])
def test_batches_of_workers_are_torchs(accelerator, persistent, collate):
    class Without(Large):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            del item["none"]
            return item

    def loader():
        return DataLoader(Without() if collate is None else Large(), batch_size=2, num_workers=2, persistent_workers=persistent,
                          collate_fn=collate, generator=torch.Generator().manual_seed(5))

    plain, prepared = loader(), accelerator.prepare(loader())
    for _ in range(2):
        for expected, found in zip(plain, prepared, strict=True):
            assert type(found) is type(expected)
            for one, other in zip(expected, found) if collate else [(expected, found)]:
                assert list(one) == list(other)
                for name in one:
                    if isinstance(one[name], torch.Tensor):
                        assert one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]), name
                    else:
                        assert one[name] == other[name]


# Regression: the second epoch of a loader with worker processes over a stream without a length asked for the length.
@pytest.mark.parametrize("persistent", [False, True])
def test_streams_that_cannot_be_counted_have_epochs(accelerator, persistent):
    loader = accelerator.prepare(DataLoader(Stream(4), num_workers=1, persistent_workers=persistent))
    assert [lists(loader) for _ in range(3)] == [[[0], [1], [2], [3]]] * 3


class Uncountable(Batches):
    """A batch sampler that cannot say how many batches it has, and so has no truth value."""

    def __len__(self):
        raise TypeError("nobody knows")


def test_batch_samplers_that_cannot_be_counted():
    loader = DataLoader(list(range(4)), batch_sampler=Uncountable([[0, 1], [2, 3]], batch_size=2, drop_last=False))
    prepared = prepare_data_loader(loader, num_processes=2, process_index=1, split_batches=True)
    assert [lists(prepared) for _ in range(2)] == [[[1], [3]]] * 2


class Failing(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise KeyError("item 5")
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_item(accelerator, workers):
    loader, found = accelerator.prepare(DataLoader(Failing(), batch_size=2, num_workers=workers)), []
    with pytest.raises(KeyError, match="item 5"):
        for batch in loader:
            found.append(batch.tolist())
            assert not loader.end_of_dataloader
    assert found == [[0, 1], [2, 3]]
    assert not torch.multiprocessing.active_children()
    assert not accelerator.gradient_state.in_dataloader


def test_workers_after_prepare_know_who_they_are(accelerator):
    class Who(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.utils.data.get_worker_info().id

    assert lists(accelerator.prepare(DataLoader(Who(), batch_size=2, num_workers=2))) == [[0, 0], [1, 1]]


# Loops


def test_loops_are_known(accelerator):
    state = accelerator.gradient_state
    outer, inner = (accelerator.prepare(DataLoader(list(range(6)), batch_size=4)) for _ in range(2))
    seen = []
    for _ in outer:
        for _ in inner:
            assert state.active_dataloader is inner
            seen.append((state.end_of_dataloader, state.remainder))
        assert state.active_dataloader is outer and state.dataloader_references == [outer]
        assert state.end_of_dataloader == outer.end_of_dataloader
    assert seen == [(False, 2), (True, 2)] * 2
    assert not state.in_dataloader
    for _ in outer:
        break
    assert not state.in_dataloader
    assert [len(list(outer)) for _ in outer] == [2, 2]


def test_accumulation_ends_with_the_loader(accelerator):
    accelerator.gradient_accumulation_steps = 3
    flags = []
    for _ in accelerator.prepare(DataLoader(list(range(4)))):
        with accelerator.accumulate():
            flags.append(accelerator.sync_gradients)
    assert flags == [False, False, True, True]


def test_nothing_is_left():
    def use():
        accelerator = Accelerator(cpu=True)
        loader = accelerator.prepare(DataLoader(list(range(8)), batch_size=2))
        batches = iter(loader)
        next(batches)
        return [weakref.ref(thing) for thing in (accelerator, loader, loader.gradient_state, loader.base_dataloader)]

    gc.disable()
    try:
        assert [reference() for reference in use()] == [None] * 4
    finally:
        gc.enable()


# Orders, positions


def test_metrics_of_ranks(ranks):
    printed = ranks("""
        import torch
        from torch.utils.data import DataLoader, TensorDataset, IterableDataset
        from accel import Accelerator, DataLoaderConfiguration

        class Stream(IterableDataset):
            def __init__(self, size): self.size = size
            def __iter__(self): return iter(range(self.size))

        for settings in ({}, {"split_batches": True}, {"dispatch_batches": True}, {"dispatch_batches": True, "split_batches": True}):
            for size in (3, 7, 9, 16, 23):
                for shuffle in (False, True):
                    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**settings))
                    torch.manual_seed(accelerator.process_index)  # the order is rank 0's
                    data = DataLoader(TensorDataset(torch.arange(size)), batch_size=4, shuffle=shuffle)
                    found = []
                    for batch, in accelerator.prepare(data):
                        found += accelerator.gather_for_metrics(batch).tolist()
                    assert sorted(found) == list(range(size)), (settings, size, shuffle, found)
        for size in (3, 7, 9, 16, 23):
            for dispatch in (None, False):
                accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
                found = []
                for batch in accelerator.prepare(DataLoader(Stream(size), batch_size=4)):
                    found += accelerator.gather_for_metrics(batch).tolist()
                assert sorted(found) == list(range(size)), (size, dispatch, found)
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
        found = []
        for batch in accelerator.prepare(DataLoader(list(range(15)), batch_size=4)):
            found += accelerator.gather_for_metrics(batch).tolist()
        assert found == list(range(15)), found
        accelerator = Accelerator(cpu=True)
        sizes = DataLoader(list(range(10)), batch_sampler=[[0, 1, 2], [3], [4, 5], [6, 7, 8], [9]])
        found = []
        for batch in accelerator.prepare(sizes):
            found += accelerator.gather_for_metrics(batch).tolist()
        print(found)
        """)
    assert printed == ["[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n"] * 2


def test_an_error_of_rank_0_is_one_of_all(ranks):
    printed = ranks("""
        import torch
        from torch.utils.data import DataLoader, Dataset
        from accel import Accelerator, DataLoaderConfiguration

        class Failing(Dataset):
            def __len__(self): return 12
            def __getitem__(self, index):
                if index == 9: raise KeyError("item 9")
                return {"x": torch.full((1, index + 1), index), "name": str(index)}

        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
        found = []
        try:
            for batch in accelerator.prepare(DataLoader(Failing(), collate_fn=lambda items: items[0])):
                found.append((batch["x"].tolist(), batch["name"]))
        except Exception as error:
            print(len(found), found[-1], type(error).__name__, "item 9" in str(error))
        """)
    assert printed == ["4 ([[6, 6, 6, 6, 6, 6, 6]], '6') KeyError True\n", "4 ([[7, 7, 7, 7, 7, 7, 7, 7]], '7') RuntimeError True\n"]


def test_custom_slices(ranks):
    printed = ranks("""
        from torch.utils.data import DataLoader
        from accel import Accelerator, DataLoaderConfiguration
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
        def last_first(batch, rows, process_index, num_processes):
            return batch[[num_processes - 1 - process_index]]
        loader = accelerator.prepare_data_loader(DataLoader(list(range(4))), slice_fn_for_dispatch=last_first)
        print([batch.tolist() for batch in loader])
        """)
    assert printed == ["[[1], [3]]\n", "[[0], [2]]\n"]


def test_ranks_have_one_order(ranks):
    script = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from accel import Accelerator, DataLoaderConfiguration
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=SEEDABLE, data_seed=SEED))
        torch.manual_seed(5 + accelerator.process_index)
        loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(20)), batch_size=3, shuffle=True))
        for _ in range(2):
            seen = [accelerator.gather_for_metrics(batch).tolist() for batch, in loader]
            assert sorted(sum(seen, [])) == list(range(20)), seen
            print(sum(seen, []))
        """
    for seedable, seed in ((False, None), (True, None), (True, 7)):
        printed = ranks(script.replace("SEEDABLE", str(seedable)).replace("SEED", str(seed)))
        assert printed[0] == printed[1]
        first, second = map(json.loads, printed[0].splitlines())
        assert first != second
        if seed == 7:
            assert first == torch.randperm(20, generator=torch.Generator().manual_seed(7)).tolist()
            assert second == torch.randperm(20, generator=torch.Generator().manual_seed(8)).tolist()


def test_skip_first_batches_as_the_reference():
    for case in cases("skip_first_batches"):
        given, expected = case["input"], case["expected"]
        if given["size"] == 0 or "error" in expected or given["loader"] == "dispatcher":
            continue
        loader = DataLoader(numbers(given["dataset"], given["size"]), given["batch_size"], drop_last=given["drop_last"])
        loader = prepare_data_loader(loader, num_processes=given.get("processes"), process_index=given.get("process_index"))
        skipping = skip_first_batches(loader, given["skip"])
        if isinstance(expected["length"], int) and given["dataset"] == "map":
            assert len(skipping) == expected["length"]
        assert lists(skipping) == expected["first_pass"], case
        assert lists(skipping) == expected["original_batches"]  # later epochs are whole
        assert lists(loader) == expected["original_batches"]


def test_skipping_a_plain_loader(accelerator):
    plain = skip_first_batches(DataLoader(list(range(10)), batch_size=2, shuffle=False), 3)
    assert lists(plain) == [[6, 7], [8, 9]] and lists(accelerator.prepare(plain)) == [[6, 7], [8, 9]]
    assert lists(skip_first_batches(DataLoader(Stream(10), batch_size=2), 3)) == [[6, 7], [8, 9]]
    assert list(SkipBatchSampler(BatchSampler(range(6), 2, False), 2)) == [[4, 5]]
    assert lists(SkipDataLoader(list(range(6)), batch_size=2, skip_batches=1)) == [[2, 3], [4, 5]]


def loader_of(kind):
    """Loaders whose order is random, each in its way."""
    torch.manual_seed(1)
    data = TensorDataset(torch.arange(13))
    if kind == "rows":
        return DataLoader(data, batch_size=2, shuffle=True)
    if kind == "own generator":
        return DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
    if kind == "items":
        return DataLoader(Same(data), batch_size=2, shuffle=True)
    if kind == "workers":
        return DataLoader(Same(data), batch_size=2, shuffle=True, num_workers=1)
    return DataLoader(Same(data), batch_size=2, sampler=WeightedRandomSampler(torch.ones(13), 13))


@pytest.mark.parametrize("kind", ["rows", "own generator", "items", "workers", "weighted"])
@pytest.mark.parametrize("taken", [0, 3, 7])
def test_an_interrupted_epoch_goes_on(accelerator, kind, taken):
    loader = accelerator.prepare(loader_of(kind))
    list(loader)  # an epoch before
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state, numbers_then = pickle.loads(pickle.dumps(loader.state_dict())), torch.get_rng_state()
    rest = [batch[0].tolist() for batch in batches]
    following = [batch[0].tolist() for batch in loader]

    other = accelerator.prepare(loader_of(kind))
    other.load_state_dict(state)
    torch.set_rng_state(numbers_then)
    assert other.iteration == (1 if taken < 7 else 2)  # an epoch whose batches are all handed out is over
    if 0 < taken < 7:
        assert state["samples"] == 2 * taken
        assert [batch[0].tolist() for batch in other] == rest and len(rest) == 7 - taken
    elif not taken:
        assert [batch[0].tolist() for batch in other] == rest
    assert [batch[0].tolist() for batch in other] == following


@pytest.mark.parametrize("stateful", [None, False])
def test_a_checkpoint_has_the_position(accelerator, tmp_path, stateful):
    accelerator.dataloader_config.use_stateful_dataloader = stateful
    loader = accelerator.prepare(loader_of("rows"))
    batches = iter(loader)
    taken = [next(batches)[0].tolist() for _ in range(2)]
    accelerator.save_state(tmp_path / "state")
    rest = [batch[0].tolist() for batch in batches]
    list(loader)
    accelerator.load_state(tmp_path / "state")
    if stateful is None:
        assert loader.iteration == 0
        assert [batch[0].tolist() for batch in loader] == rest and sorted(sum(taken + rest, [])) == list(range(13))
    else:
        assert loader.iteration == 2 and len(list(loader)) == 7
    accelerator.prepare(loader_of("items"))
    with pytest.raises(ValueError, match="positions of 1 loaders of torch, and 2 are prepared"):
        accelerator.load_state(tmp_path / "state")


def test_resuming_with_other_ranks():
    def loader(rank, count, size):
        return prepare_data_loader(DataLoader(list(range(48)), batch_size=size), num_processes=count, process_index=rank)

    two = loader(0, 2, 4)
    batches = iter(two)
    next(batches), next(batches), next(batches)
    state = two.state_dict()
    assert state["samples"] == 24
    alone = loader(0, 1, 8)
    alone.load_state_dict(state)
    assert lists(alone)[0] == list(range(24, 32))
    with pytest.raises(ValueError, match="24 items into an epoch, which is not a number of steps of 10 items"):
        loader(0, 1, 10).load_state_dict(state)


def test_skipping_what_was_resumed(accelerator):
    loader = accelerator.prepare(DataLoader(list(range(8)), batch_size=2))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state)
    rest = skip_first_batches(loader, 1)
    assert lists(rest) == [[2, 3], [4, 5], [6, 7]]
    assert loader.iteration == 1 and len(lists(loader)) == 4


def test_epochs_are_told(accelerator):
    class Told(Dataset):
        epochs = []

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index

        def set_epoch(self, epoch):
            self.epochs.append(epoch)

    loader = accelerator.prepare(DataLoader(Told()))
    list(loader), list(loader)
    loader.set_epoch(7)
    assert Told.epochs == [0, 1, 7] and loader.iteration == 7


def test_copies(accelerator):
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(6)), batch_size=2))
    for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)):
        assert isinstance(other, DataLoaderShard) and isinstance(other, DataLoader) and other is not loader
        assert [batch[0].tolist() for batch in other] == [[0, 1], [2, 3], [4, 5]] and len(other) == 3
    dispatching = DataLoaderDispatcher(list(range(6)), batch_size=2)
    assert lists(pickle.loads(pickle.dumps(dispatching))) == lists(dispatching)


def test_samplers_are_found():
    loader = prepare_data_loader(DataLoader(list(range(8)), batch_size=2, shuffle=True), num_processes=2, process_index=0,
                                 use_seedable_sampler=True, data_seed=4)
    assert isinstance(get_sampler(loader), SeedableRandomSampler) and loader.get_sampler().initial_seed == 4
    loader.set_sampler(range(8))
    assert lists(loader) == [[0, 1], [4, 5]]
    batches = BatchSampler(RandomSampler(range(8)), 2, False)
    assert get_sampler(DataLoader(list(range(8)), sampler=batches, batch_size=None)) is batches.sampler


@needs_torchdata
def test_of_torchdata():
    from torchdata.stateful_dataloader import StatefulDataLoader

    for kind in (DataLoaderShard, DataLoaderDispatcher, SkipDataLoader):
        loader = kind(list(range(16)), batch_size=4, use_stateful_dataloader=True)
        assert isinstance(loader, StatefulDataLoader) and isinstance(loader, kind)
        batches = iter(loader)
        next(batches)
        other = kind(list(range(16)), batch_size=4, use_stateful_dataloader=True)
        other.load_state_dict(loader.state_dict())
        assert lists(other) == lists(batches) == [[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    prepared = prepare_data_loader(StatefulDataLoader(list(range(4)), batch_size=2, snapshot_every_n_steps=3))
    assert isinstance(prepared, StatefulDataLoader) and prepared.snapshot_every_n_steps == 3 and lists(prepared) == [[0, 1], [2, 3]]


def test_without_torchdata(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="torchdata 0.8.0"):
        DataLoaderShard([1], use_stateful_dataloader=True)


def test_native_shards():
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": list(range(10))}).to_iterable_dataset(num_shards=2)
    loader = prepare_data_loader(DataLoader(stream, batch_size=5), num_processes=2, process_index=1, dispatch_batches=False)
    assert not isinstance(loader.dataset, IterableDatasetShard) and [batch["x"].tolist() for batch in loader] == [[5, 6, 7, 8, 9]]


def test_copies_that_go_on_need_no_page_locked_loader():
    """Batches come to a device from page-locked memory, whatever the loader has."""
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(non_blocking=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pins in (False, True):
            accelerator.prepare(DataLoader(list(range(4)), pin_memory=pins))
