# SPDX-License-Identifier: Apache-2.0
"""Loaders of torch; the package's own are in accel.data."""

from . import loader as data


def skip_first_batches(dataloader, num_batches=0):
    """A new loader over the same data whose first epoch leaves out its first batches."""
    if isinstance(dataloader, data.DataLoader):
        return data.skip_first_batches(dataloader, num_batches)
    from .prepare_data_loader import skip_first_batches as skip  # imports torch

    return skip(dataloader, num_batches)
