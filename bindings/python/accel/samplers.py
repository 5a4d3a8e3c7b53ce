"""Orders of items for each epoch, with the names of torch."""

import weakref

from . import capi


class Sampler:
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

    def __len__(self):
        return capi.accel_sampler_length(self.handle)

    def indices(self, epoch=0):
        """The order of an epoch as a tensor."""
        return capi.accel_sampler_indices(self.handle, epoch)

    def __iter__(self):
        return iter(self.indices().tolist())


class SequentialSampler(Sampler):
    def __init__(self, data_source):
        super().__init__(capi.accel_sampler_sequential(len(data_source)))


class SeedableRandomSampler(Sampler):
    """A new order in every epoch, the same in every run and on every rank."""

    def __init__(self, data_source, data_seed=0):
        super().__init__(capi.accel_sampler_seedable_random(len(data_source), data_seed))


class RandomSampler(Sampler):
    """`num_samples` draws; without them an order of all items."""

    def __init__(self, data_source, replacement=False, num_samples=None, seed=0):
        count = len(data_source) if num_samples is None else num_samples
        super().__init__(capi.accel_sampler_random_draws(len(data_source), count, int(replacement), seed))


class WeightedRandomSampler(Sampler):
    def __init__(self, weights, num_samples, replacement=True, seed=0):
        super().__init__(capi.accel_sampler_weighted([float(weight) for weight in weights], num_samples, int(replacement), seed))


class SubsetRandomSampler(Sampler):
    def __init__(self, indices, seed=0):
        super().__init__(capi.accel_sampler_subset(list(indices), 1, seed))


class LengthGroupedSampler(Sampler):
    """Random batches of items of about one length, as in transformers."""

    def __init__(self, batch_size, lengths, seed=0):
        super().__init__(capi.accel_sampler_length_grouped(list(lengths), batch_size, capi.ACCEL_UNSET_INT64, seed))


class DistributedSampler(Sampler):
    """One rank's share of an order, for programs that share the items out themselves: a prepared loader does so by itself."""

    def __init__(self, dataset, num_replicas, rank, shuffle=True, seed=0, drop_last=False):
        super().__init__(capi.accel_sampler_distributed(len(dataset), num_replicas, rank, int(shuffle), seed, int(drop_last)))
