# SPDX-License-Identifier: Apache-2.0
"""Steps of loaders that rank 0 reads whose batches have other sizes, or rows of other lengths, than the first ones."""

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

EVERY = """
    import itertools, torch
    from torch.utils.data import DataLoader, IterableDataset
    from accel import Accelerator
    from accel.utils import DataLoaderConfiguration, gather_object, pad_across_processes

    class Stream(IterableDataset):
        def __init__(self, items):
            self.items = items

        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            return iter(self.items if info is None else self.items[info.id::info.num_workers])

    def padded(items):
        return {"x": torch.nn.utils.rnn.pad_sequence([torch.full((length,), number) for number, length in items], batch_first=True, padding_value=-1)}

    def plain(items):
        return {"x": torch.tensor(items)[:, :1]}

    accelerator = Accelerator(cpu=True)
    for collate, count, size, workers, splits in itertools.product((padded, plain), range(1, 12), (1, 2, 4), (0, 2), (False, True)):
        if splits and size % accelerator.num_processes or workers and (count % 4 != 3 or splits):
            continue
        items = [(number, 1 + number % 5) for number in range(count)]
        accelerator.dataloader_config = DataLoaderConfiguration(split_batches=splits)
        seen, ends = [], []
        for batch in accelerator.prepare(DataLoader(Stream(items), batch_size=size, collate_fn=collate, num_workers=workers)):
            rows = gather_object([batch["x"].shape[0]])
            assert len(set(rows)) == 1 and rows[0] > 0, rows
            of_all = accelerator.gather_for_metrics(accelerator.pad_across_processes(batch["x"], dim=1, pad_index=-1))
            named = accelerator.gather_for_metrics([f"n{row[0]}" for row in batch["x"].tolist()], use_gather_object=True)
            for row in of_all.tolist():
                assert collate is plain or row[:1 + row[0] % 5] == [row[0]] * (1 + row[0] % 5), of_all
            assert named == [f"n{row[0]}" for row in of_all.tolist()]
            seen += of_all[:, 0].tolist()
            ends.append(accelerator.gradient_state.end_of_dataloader)
        assert sorted(seen) == list(range(count)), (collate, count, size, workers, splits, sorted(seen))
        assert ends == [False] * (len(ends) - 1) + [True]
    print("right")
"""


# Regression: a stream of torch with a padding collate function failed at a last step of other numbers of rows; a short step in
# the middle was counted with its repetitions, and a rank could get an empty batch.
@pytest.mark.parametrize("num_processes", [2, 3])
def test_each_item_counts_once_whatever_its_length(ranks, num_processes):
    assert ranks(EVERY, num_processes) == ["right\n"] * num_processes
