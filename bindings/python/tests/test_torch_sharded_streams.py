# SPDX-License-Identifier: Apache-2.0
"""Streams of the package `datasets` with shards, of which each rank reads its own."""

import itertools
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")
datasets = pytest.importorskip("datasets", reason="there is no package datasets")

SCRIPT = f"""
    import sys
    sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
    import torch
    from torch.utils.data import DataLoader
    from accel import Accelerator
    from accel.utils import DataLoaderConfiguration
    from test_torch_sharded_streams import stream

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
    def prepared(sizes, **settings):
        return accelerator.prepare(DataLoader(stream(sizes), **settings))
"""

EVERY = """
    import itertools
    from accel.utils import gather_object
    for sizes, workers, drop_last in itertools.product({sizes!r}, {workers!r}, (False, True)):
        loader = prepared(sizes, batch_size=3, num_workers=workers, drop_last=drop_last)
        for epoch in range(2):
            seen, named, rows, steps, ends = [], [], [], 0, []
            for batch in loader:
                accelerator.gather(batch["x"])  # the same numbers of rows on all ranks
                ends.append(accelerator.gradient_state.end_of_dataloader)
                metrics = accelerator.gather_for_metrics({{"x": batch["x"], "mean": batch["x"].float().mean()[None]}})
                seen += metrics["x"].tolist()
                named += accelerator.gather_for_metrics(batch["name"], use_gather_object=True)
                assert len(metrics["mean"]) == accelerator.num_processes
                batch["x"].zero_()  # what the program has is its own
                steps += 1
            assert ends == ([False] * (steps - 1) + [True] if steps else []) and (steps or drop_last), ends
            assert gather_object([steps]) == [steps] * accelerator.num_processes
            assert sorted(named) == sorted(f"n{{x}}" for x in seen), (named, seen)
            assert drop_last or sorted(seen) == list(range(sum(sizes))), (sizes, workers, sorted(seen))
            assert len(set(seen)) == len(seen)
    print("right")
"""


def numbers(firsts, sizes):
    for first, size in zip(firsts, sizes):
        for x in range(first, first + size):
            yield {"x": x, "name": f"n{x}"}


def stream(sizes):
    """A stream of a shard of each size, whose items are numbered."""
    firsts = [0, *itertools.accumulate(sizes)][:-1]
    return datasets.IterableDataset.from_generator(numbers, gen_kwargs={"firsts": firsts, "sizes": list(sizes)})


# Regression: ranks that read shards of a stream of `datasets` ended at different times, or with a mismatch of collectives.
@pytest.mark.parametrize("num_processes, workers", [(2, [0]), (2, [1, 2]), (3, [0])])
def test_ranks_end_together(ranks, num_processes, workers):
    """Shards that come out even and not, a rank that has fewer batches, a batch that is not whole."""
    sizes = [[6, 6, 6], [9, 3, 6], [4, 4, 4, 4], [1, 11, 2], [7, 2, 5, 4, 1]]
    for text in ranks(SCRIPT + EVERY.format(sizes=sizes, workers=workers), num_processes):
        assert text.endswith("right\n")


def test_a_model_trains_where_shards_are_uneven(ranks):
    for text in ranks(SCRIPT + """
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    for batch in prepared([4, 4, 4], batch_size=2):
        accelerator.backward(model(batch["x"][:, None].float()).sum())
    print("trained")
    """):
        assert text.endswith("trained\n")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_goes_on_behind_the_end_of_a_rank(ranks, workers):
    for text in ranks(SCRIPT + f"""
    def steps(loader):
        return [(batch["x"].tolist(), accelerator.gather_for_metrics(batch["x"]).tolist()) for batch in loader]
    whole = steps(prepared([2, 2, 9], batch_size=2, num_workers={workers}))
    for done in range(1, len(whole)):
        first, other = prepared([2, 2, 9], batch_size=2, num_workers={workers}), prepared([2, 2, 9], batch_size=2, num_workers={workers})
        for _, batch in zip(range(done), first):
            state = first.state_dict()
        other.load_state_dict(state)
        assert steps(other) == whole[done:], (done, whole)
        assert steps(accelerator.skip_first_batches(prepared([2, 2, 9], batch_size=2, num_workers={workers}), done)) == whole[done:]
    print(len(whole))
    """):
        assert text.endswith("5\n")


def test_failures_and_empty_shards_end_all_ranks(ranks):
    for rank, text in enumerate(ranks(SCRIPT + """
    def failing(item):
        if item["x"] == 5:
            raise OverflowError("item 5")
        return item
    for made in (lambda: DataLoader(stream([4, 4]).map(failing), batch_size=2), lambda: DataLoader(stream([4, 0]), batch_size=2)):
        seen = []
        try:
            for batch in accelerator.prepare(made()):
                seen += batch["x"].tolist()
        except Exception as error:
            print(type(error).__name__, error, seen)
    """)):
        lines = text.splitlines()[-2:]
        assert lines[0] == ("RuntimeError rank 1 could not read its batch; see its error there []" if rank == 0 else "OverflowError item 5 []")
        assert lines[1] == ("ValueError rank 1 has no item in its shards of the stream, and others have; expected shards with items, or "
                            "dispatch_batches=True []")


def test_batches_that_the_stream_makes(ranks):
    for text in ranks(SCRIPT + """
    seen = []
    for batch in accelerator.prepare(DataLoader(stream([4, 4, 6]).with_format("torch").batch(2), batch_size=None)):
        seen += accelerator.gather_for_metrics(batch["x"]).tolist()
    print(sorted(seen))
    """):
        assert text.endswith(f"{list(range(14))}\n")
