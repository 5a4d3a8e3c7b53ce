# SPDX-License-Identifier: Apache-2.0
"""Streams of which each rank reads shards of its own. All ranks end together: one that ends early repeats its first batch, which does not count."""

import copy

import torch

from .. import capi
from ..engine.values import of_kind, to_engine
from ..state.job import current, is_made
from ..tensors import trees
from .filled_batches import Filled

_END = object()
_READ, _ENDED, _EMPTY, _FAILED = range(4)


class EndingTogether:
    """The batches of this rank, as long as any rank has one; with `drop_last` as long as each has. `first` has the first batch of the epoch if the
    iterator, which begins at a step, does not. `special` says of the steps with repeated rows how many rows of each rank's batch are none, None,
    and how many rows this rank's has."""

    def __init__(self, batches, first, step, drop_last):
        self.batches, self.first, self.step, self.drop_last = batches, next(iter(first), None), step, drop_last
        self.special: dict = {}

    def __iter__(self):
        return self

    def __next__(self):
        mine, failure = _END, None
        try:
            mine = next(self.batches, _END)
            if self.first is None and mine is not _END:
                self.first = copy.deepcopy(mine)  # the program may change what it gets
        except Exception as raised:
            failure = raised
        ranks = self._about_all(mine, failure is not None)
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # which keeps this frame
        for rank, (state, _, _) in enumerate(ranks):
            if state == _FAILED:
                raise RuntimeError(f"rank {rank} could not read its batch; see its error there")
        ended = [rank for rank, (state, *_) in enumerate(ranks) if state in (_ENDED, _EMPTY)]
        if len(ended) == len(ranks) or ended and self.drop_last:
            raise StopIteration
        for rank in ended:
            if ranks[rank][0] == _EMPTY:
                raise ValueError(f"rank {rank} has no item in its shards of the stream, and others have; expected shards with items, or "
                                 "dispatch_batches=True")
        self._note(ranks)
        batch = copy.deepcopy(self.first) if mine is _END else mine
        return batch.batch if isinstance(batch, Filled) else batch

    def _about_all(self, mine, has_failed):
        """For each rank whether it has a batch, how many rows this has, and how many of them are not repetitions."""
        state = _FAILED if has_failed else _READ if mine is not _END else _EMPTY if self.first is None else _ENDED
        batch = self.first if mine is _END else mine
        rows, count = _rows_of(batch)
        about = torch.tensor([state, rows, count if state == _READ else 0])
        return (of_kind(about, capi.accel_gather(current(), to_engine(about[None]))) if is_made() else about[None]).tolist()

    def _note(self, ranks):
        counts = [count for _, _, count in ranks]
        if any(rows != count for _, rows, count in ranks) or len(set(counts)) > 1:
            own = ranks[capi.accel_process_index(current()) if is_made() else 0]
            self.special[self.step] = counts, None, own[1]
        self.step += 1


def _rows_of(batch):
    """The rows of a batch, and how many of them are not repetitions. Where the dataset made the batch, its tensors know that."""
    if isinstance(batch, Filled):
        return batch.rows, batch.count
    try:
        rows = trees.ignorant_find_batch_size(batch) or 0
    except IndexError:  # of a tensor without dimensions
        rows = 0
    return rows, rows
