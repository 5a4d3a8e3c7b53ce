"""A progress bar on one process of each host."""

from .state import PartialState


def tqdm(*args, main_process_only=True, **kwargs):
    """The bar of the package tqdm, with its arguments; switched off elsewhere than on the local main process."""
    try:
        from tqdm.auto import tqdm as bar
    except ImportError as error:
        raise ImportError("accel.tqdm needs the package tqdm: pip install tqdm") from error
    if main_process_only:
        kwargs["disable"] = kwargs.get("disable", False) or PartialState().local_process_index != 0
    return bar(*args, **kwargs)
