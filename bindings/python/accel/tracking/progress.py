# SPDX-License-Identifier: Apache-2.0
"""Progress bars on one process of each host."""

import contextlib

from .. import capi
from ..generated import methods
from ..state.job import current
from ..state.options import fill
from ..state.process import PartialState


def tqdm(*args, main_process_only=True, **kwargs):
    """The bar of the package tqdm, with its arguments; switched off elsewhere than on the local main process."""
    try:
        from tqdm.auto import tqdm as bar
    except ImportError as error:
        raise ImportError("accel.tqdm needs the package tqdm: pip install tqdm; accel.progress.ProgressBar needs none") from error
    if args and isinstance(args[0], bool):
        raise ValueError(f"tqdm({args[0]}, ...): the first argument is what is counted; say main_process_only={args[0]} by name")
    if main_process_only:
        kwargs["disable"] = kwargs.get("disable", False) or PartialState().local_process_index != 0
    return bar(*args, **kwargs)


class ProgressBar(methods.ProgressBar):
    """The engine's bar, with the habits of tqdm and without a package: `for batch in ProgressBar(loader, "train"):`, or in `with` and by update().
    It is quiet where stderr is not a terminal, unless disable=False; show(line, is_last) gets the lines instead. Settings: unit,
    local_main_process_only, disable, leave, width, initial, interval_ms."""

    def __init__(self, iterable=None, label="", total=None, show=None, **settings):
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        self._iterable, self._is_open = iterable, True
        self._handle = capi.accel_progress_begin(current(), label, capi.ACCEL_UNSET_INT64 if total is None else total,
                                                 fill(capi.accel_progress_options_t(), settings), show)

    def __iter__(self):
        with self:
            for item in self._iterable:
                yield item
                self.update()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with contextlib.suppress(*(() if kind is None else (capi.Error,))):  # what ended the body is the news
            self.close()

    def set_postfix(self, **values):
        """Sets the values behind the rate: numbers and texts; memory=None stands for the memory of the process."""
        capi.accel_progress_set_values(self._handle, values)
