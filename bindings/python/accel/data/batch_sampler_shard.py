# SPDX-License-Identifier: Apache-2.0
"""Batch samplers whose batches the ranks share."""

from itertools import chain, islice

from torch.utils.data import BatchSampler


class BatchSamplerShard(BatchSampler):
    """The batches of one rank: of each `num_processes` batches of `batch_sampler` the one in place `process_index`, or with
    `split_batches` that part of each batch.

    With `even_batches` all ranks get equally many batches of equal size: the last ones are filled up with the first indices of the
    epoch. Without, ranks may get fewer, or a shorter last one. A batch sampler without `batch_size` has batches of any size, which are
    handed out whole.
    """

    def __init__(self, batch_sampler, num_processes=1, process_index=0, split_batches=False, even_batches=True):
        self.batch_sampler, self.num_processes, self.process_index = batch_sampler, num_processes, process_index
        self.split_batches, self.even_batches = split_batches, even_batches
        self.batch_size = getattr(batch_sampler, "batch_size", None)
        self.drop_last = getattr(batch_sampler, "drop_last", False)
        self.special_steps = {}
        if split_batches and (self.batch_size is None or self.batch_size % num_processes):
            raise ValueError(f"split_batches needs a batch size that is a round multiple of the {num_processes} processes; "
                             f"the batch sampler has {self.batch_size}")

    @property
    def total_length(self):
        """Batches of all ranks."""
        return len(self.batch_sampler)

    @property
    def rows_of_rank(self):
        """The size of a whole batch of one rank; None where batches have any size."""
        return self.batch_size // self.num_processes if self.split_batches else self.batch_size

    def __len__(self):
        length = len(self.batch_sampler)
        if self.split_batches:
            return length
        whole, rest = divmod(length, self.num_processes)
        if self.drop_last or not rest:
            return whole
        return whole + 1 if self.even_batches or self.process_index < rest else whole

    def __iter__(self):
        return self.share_of(self.batch_sampler)

    def share_of(self, batches):
        """This rank's batches of those of the batch sampler, which are lists or ranges. `special_steps` is then a dict that says of each
        step whose batches are not all whole: the rows of each rank's batch, -1 for none, and how many of all are not repetitions."""
        self.special_steps = special = {}
        return self._share(batches, special)

    def _share(self, batches, special):
        whole = [self.rows_of_rank] * self.num_processes
        for step, (parts, valid) in enumerate(self._split(batches) if self.split_batches else self._deal(batches)):
            rows = [-1 if part is None else len(part) for part in parts]
            if valid is not None or rows != whole:
                special[step] = rows, valid
            if parts[self.process_index] is not None:
                yield parts[self.process_index]

    def _deal(self, batches):
        """For each step the batches of all ranks, and for the last one, when it is filled up or short, how many indices of it count."""
        reading, count, first = iter(batches), self.num_processes, None
        while group := list(islice(reading, count)):
            first = first or list(group)
            is_whole = len(group) == count and (self.batch_size is None or len(group[-1]) == self.batch_size)
            if not is_whole and len(group) == count and (following := next(reading, None)) is not None:
                reading, is_whole = chain([following], reading), True  # short, and not the last one
            if is_whole:
                yield group, None
            elif not self.drop_last:
                yield self._complete(group, first), sum(map(len, group))

    def _complete(self, group, first):
        """The last step, which has not a whole batch for each rank."""
        count, size = self.num_processes, self.batch_size
        if not self.even_batches:
            return group + [None] * (count - len(group))
        if size is None:
            return group + [first[place % len(first)] for place in range(count - len(group))]
        indices = _filled(_joined(group), _joined(first), count * size)
        return [indices[begin:begin + size] for begin in range(0, count * size, size)]

    def _split(self, batches):
        """The batches where each batch is cut into the parts of the ranks."""
        size, part, first, short = self.batch_size, self.rows_of_rank, None, None
        for batch in batches:
            if short is not None:
                raise ValueError(f"a batch of {len(short)} items is not the last one, and the batch size to be split is {size}")
            first = batch if first is None else first
            if len(batch) == size:
                yield [batch[begin:begin + part] for begin in range(0, size, part)], None
            elif not self.drop_last:
                short, filled = batch, _filled(batch, first, size) if self.even_batches else batch
                parts = [filled[begin:begin + part] for begin in range(0, size, part)]
                yield [piece if len(piece) else None for piece in parts], len(batch)


def _joined(batches):
    return list(chain.from_iterable(batches))


def _filled(indices, more, size):
    """The first `size` of the indices, and of others again and again."""
    return _joined([indices, *[more] * -(-(size - len(indices)) // len(more))])[:size]
