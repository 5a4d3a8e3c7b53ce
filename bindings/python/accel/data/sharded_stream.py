"""Streams of which each rank reads shards of its own. All ranks end together: one that ends early repeats its first batch, which does not count."""

import copy
from itertools import cycle, islice

import torch

from ..parallel import collectives
from ..state.process import PartialState
from ..tensors import trees

_END = object()
_READ, _ENDED, _EMPTY, _FAILED = range(4)


class Filled:
    """A batch, its number of rows, and how many of them are no repetition."""

    def __init__(self, batch, rows, count):
        self.batch, self.rows, self.count = batch, rows, count

    def pin_memory(self):  # in torch's thread for that
        from torch.utils.data._utils.pin_memory import pin_memory

        return Filled(pin_memory(self.batch), self.rows, self.count)


class FillingUp:
    """A collate function for lists of `size` items. Shorter ones are filled up with copies of their own items, which fit each other."""

    def __init__(self, collate_fn, size):
        self.collate_fn, self.size = collate_fn, size

    def __call__(self, items):
        count = len(items)
        copies = (copy.deepcopy(item) for item in islice(cycle(list(items)), max(self.size - count, 0)))
        return Filled(self.collate_fn([*items, *copies]), max(self.size, count), count)


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
        """Of each rank whether it has a batch, how many rows this has, and how many of them are no repetition."""
        state = _FAILED if has_failed else _READ if mine is not _END else _EMPTY if self.first is None else _ENDED
        batch = self.first if mine is _END else mine
        rows, count = _rows_of(batch)
        about = torch.tensor([state, rows, count if state == _READ else 0])
        return (collectives.all_gather(about) if PartialState.is_made() else about[None]).tolist()

    def _note(self, ranks):
        counts = [count for _, _, count in ranks]
        if any(rows != count for _, rows, count in ranks) or len(set(counts)) > 1:
            own = ranks[PartialState().process_index if PartialState.is_made() else 0]
            self.special[self.step] = counts, None, own[1]
        self.step += 1


def _rows_of(batch):
    """The rows of a batch, and how many of them are no repetition. Of what the dataset made to a batch the tensors know it."""
    if isinstance(batch, Filled):
        return batch.rows, batch.count
    try:
        rows = trees.ignorant_find_batch_size(batch) or 0
    except IndexError:  # of a tensor without dimensions
        rows = 0
    return rows, rows
