# SPDX-License-Identifier: Apache-2.0
"""Orders of items for each epoch, with the names of torch."""

import weakref

from .. import capi
from ..generated import methods


class Sampler(methods.Sampler):
    """An order. A subclass has `__len__()` and `order(epoch)`, which gives the numbers of that epoch's items, always the same."""

    def __init__(self, handle=None):
        if handle is None:
            owner = weakref.ref(self)  # the engine holds the callback: no circle

            def fill_in(epoch, indices):
                order = list(owner().order(epoch))
                if len(order) != len(indices):
                    raise ValueError(f"{type(owner()).__name__}.order() gave {len(order)} numbers; its length is {len(indices)}")
                for place, index in enumerate(order):
                    indices[place] = index

            handle = capi.accel_sampler_create(len(self), fill_in)
        self.handle = handle

    def order(self, epoch):
        raise NotImplementedError(f"{type(self).__name__} has no order()")

    def __iter__(self):
        return iter(self.indices().tolist())
