# SPDX-License-Identifier: Apache-2.0
"""How many rows each rank's batch has in the steps of an epoch, and how many of them are not repetitions."""

from ..state.job import data_parallel_size, is_made
from .batch_sampler_shard import BatchSamplerShard
from .iterable_dataset_shard import IterableDatasetShard
from .torch_samplers import SkipBatchSampler, batch_samplers_of


class StepRows:
    """The rows of an epoch of a loader, whose first batch was read already."""

    def __init__(self, dataloader):
        ranks = data_parallel_size() if is_made() else 1
        self.whole = [max(dataloader.remainder, 0)] * ranks  # of a step whose batches are all whole
        self.special = {}  # the other steps, which get known while they are read
        self.first = 0  # which of these the first batch belongs to
        self.stream = None
        samplers = batch_samplers_of(dataloader)
        shard = next((place for place, found in enumerate(samplers) if isinstance(found, BatchSamplerShard)), None)
        if shard is not None and samplers[shard].num_processes == ranks:
            self.whole, self.special = [samplers[shard].rows_of_rank or 0] * ranks, samplers[shard].special_steps
            self.first = sum(found.skip_batches for found in samplers[:shard] if isinstance(found, SkipBatchSampler))
        elif isinstance(dataloader.dataset, IterableDatasetShard) and dataloader.dataset.num_processes == ranks:
            self.whole = [dataloader.dataset.group_size // ranks] * ranks
            self.stream = dataloader.dataset if dataloader.num_workers == 0 else None  # else only the workers know it
        elif dataloader.reads_shards:
            self.special = dataloader._shards.special
        self.reported = None
        self.own = None  # of this rank's batch, where not all of its rows are reported

    def changes_at(self, step):
        """Whether a step is another one than the step before."""
        return self.reported is not self.whole or step + self.first in self.special

    def at(self, step, is_last):
        """The rows of each rank's batch, -1 for none, and how many of all are not repetitions; None where that is not said. Rows that a rank of a
        stream in shards repeats are not among them."""
        self.reported, remainder, *own = self.special.pop(step + self.first, (self.whole, None))
        self.own = own[0] if own else None
        if is_last and self.stream is not None:
            remainder = self.stream.last_group or 0
        return self.reported, remainder
