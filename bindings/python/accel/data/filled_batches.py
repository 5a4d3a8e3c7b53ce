# SPDX-License-Identifier: Apache-2.0
"""Batches whose last rows are repetitions, which make them as long as all others."""

import copy
from itertools import cycle, islice


class Filled:
    """A batch, its number of rows, and how many of them are not repetitions."""

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
