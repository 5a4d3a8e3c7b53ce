# SPDX-License-Identifier: Apache-2.0
"""Loaders of torch that rank 0 reads for all."""

from itertools import islice
from math import ceil

import torch

from .. import capi
from ..engine.device_copy import of_torch, to_device
from ..engine.objects import from_this_host, packed_item, unpacked
from ..state.job import current, data_parallel_index, data_parallel_size
from ..state.process import PartialState
from ..tensors import trees
from . import generators
from .loader_adapter import DataLoaderAdapter
from .loop_state import DataLoaderStateMixin


def _submesh(axis):
    """A property: the mesh along one axis, where the loader's mesh has it."""
    return property(lambda self: self.torch_device_mesh[axis] if axis in getattr(self.torch_device_mesh, "mesh_dim_names", ()) else None)


class DataLoaderDispatcher(DataLoaderAdapter, DataLoaderStateMixin):
    """A loader that rank 0 reads, and whose rows it hands to all ranks. A step takes a batch for each rank, or with `split_batches` one
    that is cut into parts; ranks at the same place of the mesh's axes for data get the same. Rows of the first step fill up the last one, unless `_drop_last`.

    `slice_fn(batch, slice, process_index=, num_processes=)` cuts one rank's batch out of that of all; it runs on rank 0.
    """

    def __init__(self, dataset, split_batches=False, skip_batches=0, use_stateful_dataloader=False, _drop_last=False, _non_blocking=False,
                 slice_fn=None, torch_device_mesh=None, iteration=0, **kwargs):
        super().__init__(dataset, use_stateful_dataloader=use_stateful_dataloader, **kwargs)
        self.split_batches, self.skip_batches, self._slice_fn = split_batches, skip_batches, slice_fn
        self._drop_last, self._non_blocking, self.torch_device_mesh = _drop_last, _non_blocking, torch_device_mesh
        self.state = PartialState()
        self._count, self._place = data_parallel_size(), data_parallel_index()  # others along the mesh have the same rows
        self.iteration = iteration

    submesh_tp, submesh_dp, submesh_fsdp = _submesh("tp"), _submesh("dp"), _submesh("fsdp")
    slice_fn = property(lambda self: self._slice_fn or trees.slice_tensors)

    @property
    def _batches_of_step(self):
        return 1 if self.split_batches else self._count

    @property
    def _fills_up(self):
        return not self._drop_last and self._count > 1

    def __len__(self):
        steps = len(self.base_dataloader) / self._batches_of_step
        return max((int(steps) if self._drop_last else ceil(steps)) - self.skip_batches - self._left_out, 0)

    @property
    def total_batch_size(self):
        return self.base_dataloader.batch_sampler.batch_size * self._batches_of_step

    @property
    def total_dataset_length(self):
        return len(self.dataset)

    def __iter__(self):
        """The batches of an epoch. One step is read ahead, so that the last one is known to be the last."""
        loop, reads = self.begin(), self.state.process_index == 0
        try:
            steps = None
            if reads:
                batches, step = self._open_epoch()
                steps = self._steps(batches)
            else:
                step = self._follow_epoch()
            while (taken := self._take(steps)) is not None:
                part, rows, counts, is_last = taken
                self._handed_out, self._is_handed_out, step = step + 1, is_last, step + 1
                if is_last and counts == _in_order(sum(counts), rows, len(counts)) or set(counts) == {rows}:
                    self._report_batch(loop, [rows] * self._count, sum(counts), is_last)
                else:
                    self._report_batch(loop, counts, sum(counts), is_last, rows)
                if is_last:
                    self._snapshot()
                yield to_device(part, torch.device(str(self.state.device)), self._non_blocking)
            self._end_epoch()
        finally:
            batches = steps = None  # a traceback keeps this frame, and should not keep the workers
            self.end()

    def _follow_epoch(self):
        """The step of a rank that does not read: where an epoch begins it draws the random number that a reader draws for its workers."""
        goes_on = self._goes_on()
        if not self._resumed:
            self._forget_position()
        self._resumed, self._continued_by = False, None
        self.set_epoch(self.iteration)
        if not goes_on:
            self._began_with = generators.states_of(self._generators())
        if not self._reader.begin() and not goes_on:
            torch.empty((), dtype=torch.int64).random_(generator=self.base_dataloader.generator)
        return max(self.skip_batches, self._handed_out)

    def _steps(self, batches):
        """On rank 0, for each step: all ranks' batches, the rows of one, how many of these are not repetitions on each rank, whether it is the
        last."""
        size = self._batches_of_step
        group = self._group(batches, size)
        first, self._first = self._first or group, []
        while group:
            self._snapshot()
            self._before_reading_ahead()
            failure, following = None, []
            try:
                following = self._group(batches, size)
            except Exception as raised:  # of the step after this one
                failure = raised
            yield *self._cut(group, first), not following and failure is None
            if failure is not None:
                try:
                    raise failure
                finally:
                    failure = None  # which keeps this frame
            group = following

    def _group(self, batches, size):
        group = list(islice(batches, size))
        return [] if self._drop_last and len(group) < size else group

    def _cut(self, group, first):
        """The batches of the ranks, the rows of each, and how many of these are not repetitions on each rank."""
        count = self._count
        if count == 1 and self._slice_fn is None:
            rows = trees.ignorant_find_batch_size(group[0]) or 0
            return group, rows, [rows]
        sizes = [trees.find_batch_size(batch) for batch in group]
        if self._slice_fn is None and len(group) == count and len(set(sizes)) == 1:
            return group, sizes[0], sizes
        try:
            batch = _joined(group)
        except _UnlikeRows:
            if self._slice_fn is not None:
                raise
            return self._whole(group, sizes)
        found, each = sum(sizes), sum(sizes) // count
        if found % count and not self._drop_last:
            each += 1
            batch = self._filled_up(batch, found, count * each, first)
        parts = [self._slice(batch, rank * each, (rank + 1) * each, rank) for rank in range(count)]
        return parts, each, _in_order(found, each, count)

    def _filled_up(self, batch, found, size, first):
        """A batch of `found` rows with as many as `size`: others from the first step, or its own again where those are of another shape."""
        try:
            more = self._slice(_joined(first), 0, self._count, 0)
            batch = _joined([batch, more])
            found += trees.find_batch_size(more)
        except _UnlikeRows:
            pass
        return batch if found >= size else _repeated(batch, found, size)

    def _whole(self, group, sizes):
        """Batches that cannot be put together: each rank gets one of them, and where there are too few one that another rank has, too."""
        each, missing = max(sizes), self._count - len(group)
        parts = [part if rows == each else _repeated(part, rows, each) for part, rows in zip(group, sizes)]
        return [*parts, *[parts[-1]] * missing], each, [*sizes, *[0] * missing]

    def _slice(self, batch, begin, end, rank):
        if self._slice_fn is None:
            return trees.slice_tensors(batch, slice(begin, end))
        return self._slice_fn(batch, slice(begin, end), process_index=rank, num_processes=self._count)

    def _take(self, steps):
        """This rank's part of the next step, with what there is to say of it; None after the last one."""
        if self.state.num_processes == 1:
            step = next(steps, None)
            return step and (step[0][0], *step[1:])
        mine, failure, message = None, None, {}
        if steps is not None:
            try:
                step = next(steps, None)
                if step is not None:
                    mine = (step[0][0], *step[1:])
                    first = None if self._count == self.state.num_processes else packed_item(step[0][0])
                    message = {"parts": [first, *map(packed_item, step[0][1:])], "about": list(step[1:])}
            except Exception as raised:
                failure, message = raised, {"failure": f"{type(raised).__name__}: {raised}"}
        job = current()
        received = capi.accel_broadcast_object_list(job, [message], 0)[0]
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None
        if "failure" in received:
            raise RuntimeError(f"rank 0 could not read a batch for all ranks: {received['failure']}")
        if steps is not None or not received:
            return mine
        part = unpacked(received["parts"][self._place], from_this_host(job))
        return of_torch(part), *received["about"]


def _in_order(found, each, count):
    """How many rows of each rank's batch are not repetitions where the first `found` of all are none."""
    return [min(max(found - rank * each, 0), each) for rank in range(count)]


def _repeated(batch, rows, size):
    """A batch with its rows again and again, until they are `size`."""
    whole = [batch] * (size // rows)
    return _joined([*whole, trees.slice_tensors(batch, slice(0, size % rows))] if size % rows else whole)


class _UnlikeRows(RuntimeError):
    """Rows of different shapes, which no batch can have."""


def _joined(batches):
    """One batch of the rows of several. Batches of different shapes are an _UnlikeRows."""
    if len(batches) == 1:
        return batches[0]
    try:
        return trees.concatenate(batches)
    except TypeError:  # what is not a tensor
        raise
    except (RuntimeError, ValueError) as error:
        raise _UnlikeRows("batches of different shapes cannot be put together for slice_fn_for_dispatch: leave it out, give "
                          "dispatch_batches=False, so that each rank reads its own, or split_batches=True, so that a batch has the rows of all "
                          "ranks") from error
