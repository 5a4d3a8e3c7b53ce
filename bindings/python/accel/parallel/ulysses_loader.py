# SPDX-License-Identifier: Apache-2.0
"""Batches of which each rank of sequence parallelism has some positions, as of DeepSpeed's UlyssesSPDataLoaderAdapter."""

from collections.abc import Mapping

from ..engine.torch_types import is_torch_tensor, torch_module
from ..tensors import creation, ops
from . import split_sequences

_IGNORED = -100  # a label that does not count


class UlyssesLoader:
    """The batches of a loader, whose batches all ranks along sp get, with this rank's positions of each tensor. In place of "labels" there are
    "shift_labels", which are those of the next positions, and "position_ids" are there in any case. A sequence that the ranks cannot share evenly
    is padded, with labels that do not count."""

    def __init__(self, dl, state, padding):
        self.dl, self.state, self.padding = dl, state, padding
        self.ranks = split_sequences.ranks_of(state)

    def __getattr__(self, name):
        if name == "dl":
            raise AttributeError(name)
        return getattr(self.dl, name)

    def __len__(self):
        return len(self.dl)

    def __iter__(self):
        for batch in self.dl:
            yield self._part(batch)

    def _part(self, batch):
        if not isinstance(batch, Mapping) or "input_ids" not in batch:
            raise ValueError(f"deepspeed_ulysses_dl_adapter(): the loader gave a {type(batch).__name__}; expected a mapping with 'input_ids'")
        whole = dict(batch)
        tokens = whole["input_ids"]
        rows, length = tokens.shape[0], tokens.shape[1]
        library = torch_module() if is_torch_tensor(tokens) else _Engine
        if "labels" in whole:
            labels = whole.pop("labels")
            whole["shift_labels"] = library.cat([labels[:, 1:], library.full((rows, 1), _IGNORED, dtype=labels.dtype, device=labels.device)], 1)
        missing = -length % self.ranks
        if "position_ids" not in whole:
            whole["position_ids"] = library.arange(length, device=tokens.device).reshape(1, length).repeat(rows, 1)
        for key, value in whole.items():
            if not hasattr(value, "shape") or len(value.shape) < 2 or value.shape[1] != length:
                continue
            if missing:
                value = library.cat([value, self._padding(library, key, value, missing)], 1)
            whole[key] = value.detach()  # a handle of its own, which is cut in place
        split = [value for key, value in whole.items() if hasattr(value, "shape") and len(value.shape) > 1 and value.shape[1] == length + missing]
        with split_sequences.opened(self.state, split, [1] * len(split), split):
            return whole

    def _padding(self, library, key, value, missing):
        shape = (value.shape[0], missing, *value.shape[2:])
        if key == "position_ids":
            begin = value.shape[1]
            return library.arange(begin, begin + missing, dtype=value.dtype, device=value.device).reshape(1, missing).repeat(value.shape[0], 1)
        number = {"shift_labels": _IGNORED, "input_ids": self.padding}.get(key, 0)
        return library.full(shape, number, dtype=value.dtype, device=value.device)


class _Engine:
    """The functions of torch that are used here, of the engine."""

    arange, full = staticmethod(creation.arange), staticmethod(creation.full)

    @staticmethod
    def cat(tensors, dim):
        return ops.cat(tensors, dim)


def adapt(dl, model, state, config):
    """The loader that deepspeed_ulysses_dl_adapter() returns."""
    if split_sequences.ranks_of(state) == 1 or config is not None and config.sp_size == 1:
        return dl
    of_model = getattr(model, "inputs_are_split", True)
    if not getattr(getattr(model, "forward", None), "inputs_are_split", of_model):
        raise ValueError(f"deepspeed_ulysses_dl_adapter(): {type(model).__name__} takes whole sequences; expected ParallelismConfig(sp_size=...), or a "
                         "model of prepare_model(..., context_parallel={'inputs_are_split': 1})")
    split_sequences.require_full_attention(model)
    padding = getattr(getattr(model, "config", None), "pad_token_id", None)
    return UlyssesLoader(dl, state, padding if isinstance(padding, int) else 0)
