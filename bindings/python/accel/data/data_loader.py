"""Loaders of torch; the package's own are in accel.data."""

from ..engine.torch_types import is_torch_loader
from ..modules.given import wrong_kind
from . import loader as data


def skip_first_batches(dataloader, num_batches=0):
    """A new loader over the same data whose first epoch leaves out its first batches."""
    if isinstance(dataloader, data.DataLoader):
        return data.skip_first_batches(dataloader, num_batches)
    if not is_torch_loader(dataloader):
        raise wrong_kind("skip_first_batches", dataloader, "a loader", "one of accel or torch")
    from .prepare_data_loader import skip_first_batches as skip  # imports torch

    return skip(dataloader, num_batches)
