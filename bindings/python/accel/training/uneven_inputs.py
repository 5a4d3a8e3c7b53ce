# SPDX-License-Identifier: Apache-2.0
"""Ranks that have different numbers of batches, from loaders of torch."""

import contextlib
import warnings

from .. import capi
from ..data.batch_sampler_shard import BatchSamplerShard
from ..data.loader_adapter import DataLoaderAdapter
from ..data.torch_samplers import batch_samplers_of
from ..engine.scopes import scope
from .sparse_gradients import refuse_uneven_inputs


@contextlib.contextmanager
def join(state, models, dataloaders, even_batches=None):
    """The ranks may have different numbers of batches inside. `even_batches` holds inside for all prepared loaders but for streams."""
    refuse_uneven_inputs(models)
    loaders = [loader for loader in dataloaders if isinstance(loader, DataLoaderAdapter)]
    shards = [found for loader in loaders for found in batch_samplers_of(loader) if isinstance(found, BatchSamplerShard)]
    former = [shard.even_batches for shard in shards]
    if even_batches is not None and len(shards) < len(loaders):
        warnings.warn("even_batches is only supported for map-style datasets; prepared loaders over streams, and those that rank 0 reads "
                      "for all, stay as they are", stacklevel=3)
    try:
        for shard in shards if even_batches is not None else ():
            shard.even_batches = even_batches
        if even_batches is not None:
            even = int(even_batches)
        else:
            even = int(all(shard.even_batches for shard in shards)) if loaders else capi.ACCEL_UNSET
        with scope(capi.accel_join_uneven_inputs_begin, state, models, even):
            yield
    finally:
        for shard, even in zip(shards, former):
            shard.even_batches = even
