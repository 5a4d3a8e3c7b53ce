# SPDX-License-Identifier: Apache-2.0
"""TensorBoard."""

import os
from operator import attrgetter
from pathlib import Path

from ..tensors.trees import listify
from .engine import OF_THE_RUN, EngineTracker

_OF_THE_WRITER = ("comment", "purge_step")


class TensorBoardTracker(EngineTracker):
    """Event files that TensorBoard shows, in logging_dir/run_name. `settings` are those of SummaryWriter: the engine, which writes the files,
    needs no package; `tracker`, and settings for what is logged, need torch with tensorboard, or tensorboardX."""

    name = "tensorboard"

    def __init__(self, run_name, logging_dir, **settings):
        super().__init__(run_name, logging_dir, **settings)
        self._writer, self._has_ended = None, False

    def _settings(self):
        return {name: value for name, value in self.init_kwargs.items() if name not in _OF_THE_WRITER}

    @property
    def logging_dir(self):
        """The folder of the run."""
        location = self.location
        if location:
            return str(Path(location) if os.path.isdir(location) else Path(location).parent)
        return os.path.join(self.logging_dir_param, self.run_name)

    @property
    def writer(self):
        """A SummaryWriter in the folder of the run, made when it is asked for; None where the tracker does not run."""
        if self._writer is None and self._run is not None:
            settings = {name: value for name, value in self.init_kwargs.items() if name not in OF_THE_RUN}
            self._writer = _summary_writer()(self.logging_dir, **settings)
        return self._writer

    tracker = property(attrgetter("writer"))

    def log(self, values, step=None, **kwargs):
        """Writes to all trackers of the engine. With `kwargs` the values go through the SummaryWriter: numbers by add_scalar(), texts by
        add_text(), maps of numbers by add_scalars(), which get them. After finish() the tracker begins again, with another file, as a
        SummaryWriter does."""
        if self._has_ended and self._run is None:
            self.start()
        if not kwargs:
            super().log(values, step)
            return
        for name, value in listify(values).items():
            kind = "scalar" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "scalars" if isinstance(value, dict) else None
            if kind is not None:
                getattr(self.writer, f"add_{kind}")(name, value, global_step=step, **kwargs)
        self.writer.flush()

    def log_images(self, values, step=None, dataformats="NCHW", **kwargs):
        """Writes to all trackers of the engine; with `kwargs` by add_images()."""
        if not kwargs:
            super().log_images(values, step, dataformats)
            return
        for name, images in values.items():
            self.writer.add_images(name, images, global_step=step, dataformats=dataformats, **kwargs)

    def finish(self):
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._has_ended = self._has_ended or self._run is not None
        super().finish()


def _summary_writer():
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError("the SummaryWriter of the tracker 'tensorboard' needs torch and tensorboard, or tensorboardX") from error
    return SummaryWriter
