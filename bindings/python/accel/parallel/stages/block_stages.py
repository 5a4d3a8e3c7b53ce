# SPDX-License-Identifier: Apache-2.0
"""A stage of a model with one list of blocks: the model's own forward, of which a part is computed."""

import contextlib

import torch
from torch.utils._pytree import tree_leaves

from .stage_modules import forward_of, without_cache, without_checkpoint

_OF_ALL_BLOCKS = ("output_hidden_states", "output_attentions", "output_router_logits")  # outputs that no stage has


class _StageEnd(BaseException):
    """Leaves the forward of a model behind the last block of a stage."""

    def __init__(self, value):
        self.value = value


class BlockStage:
    """The blocks from `begin` to `end`, and what the model computes before the first or behind the last of all. `leading` are modules that the model calls
    before the blocks, by their paths. A stage behind the first one does not have them: what they give goes into the first block only, which the first
    call of each stage makes sure of."""

    def __init__(self, chain, begin, end, is_last, leading=None):
        self.chain, self.begin, self.end, self.is_last, self.leading = chain, begin, end, is_last, leading or {}
        self._is_checked = False  # a call has shown that the stage needs nothing that it has not
        self._given: dict = {}  # by these modules, in the first stage, until then
        self.before, self.last = chain.blocks[:begin], None if is_last else chain.blocks[end - 1]

    def __call__(self, value):
        named = self.chain.by_name(value["args"], value["named"]) if "args" in value else value["named"]
        config = getattr(self.chain.model, "config", None)
        asked = [name for name in _OF_ALL_BLOCKS if named.get(name, getattr(config, name, None))]
        if asked:
            raise ValueError(f"{asked[0]}=True: a stage has its own blocks only; expected a call without it")
        output = self.run(named, value.get("passed"))
        return output if self.is_last else {"named": named, "passed": output}

    def run(self, named, passed):
        """The output of the last block of the stage; for the last stage the model's output."""
        with contextlib.ExitStack() as stack:
            self._skip(stack, passed)
            if self.last is not None:
                stack.enter_context(forward_of(self.last, _leaving(self.last.forward)))
            for block in (*self.before, *filter(None, [self.last])):
                stack.enter_context(without_checkpoint(block))
            if "use_cache" not in named:
                stack.enter_context(without_cache(self.chain.model))
            try:
                output = self.chain.forward(**named)
                if self.last is not None:
                    raise NotImplementedError(f"{type(self.chain.model).__name__} has not called {self.chain.names[self.end - 1]}, the last block of a stage; "
                                              "expected a model that calls all of its blocks")
            except _StageEnd as end:
                output = end.value
        if not self._is_checked:
            if self._given:
                _require_alike(self._given, _hidden(output))
            if self.begin and _has_nan(output) and not _has_nan(passed):
                raise NotImplementedError(f"what is behind {self.chain.names[self.begin - 1]} gives NaN and got none: it uses what modules before the blocks "
                                          "give, which is NaN in stages behind the first one, or weights have overflowed; expected modules before the blocks whose "
                                          "results go into the first block only")
            self._is_checked, self._given = True, {}
        return output

    def _skip(self, stack, passed):
        """The modules of other stages compute nothing, until the end of `stack`."""
        reached: set = set()
        for name, block in zip(self.chain.names, self.before):
            stack.enter_context(forward_of(block, _skipping(name, passed, reached)))
        if not self.begin:
            for path, module in self.leading.items() if not self.is_last and not self._is_checked else ():
                stack.enter_context(forward_of(module, _noting(path, module.forward, self._given)))
            return
        words = getattr(self.chain.model, "get_input_embeddings", lambda: None)()
        if isinstance(words, torch.nn.Embedding) and words not in self.leading.values():  # its rows would not be used
            stack.enter_context(forward_of(words, lambda ids: words.weight.new_full((*ids.shape, words.embedding_dim), torch.nan)))
        for path, module in self.leading.items():
            stack.enter_context(forward_of(module, _unused(path, module, passed, reached)))


def _leaving(forward):
    def run(*args, **kwargs):
        raise _StageEnd(forward(*args, **kwargs))

    return run


def _skipping(name, passed, reached):
    """The forward of a block of an earlier stage."""
    def run(*_, **__):
        if name in reached:
            raise NotImplementedError(f"the model calls {name} again: a stage computes its blocks once; expected a model that calls each block once")
        reached.add(name)
        return passed

    return run


def _unused(path, module, passed, reached):
    """The forward of a module whose result no block of the stage uses: NaN of the shape of what a block gets, so that a use shows; and dropout none."""
    if isinstance(module, torch.nn.Dropout):
        return lambda value: value
    hidden = _hidden(passed)

    def run(*_, **__):
        if reached:
            raise NotImplementedError(f"{path} stands before the blocks of the model and is called behind them; expected the modules in the order of the "
                                      "calls")
        return hidden.new_full((), torch.nan if hidden.is_floating_point() else 0).expand(hidden.shape)

    return run


def _noting(path, forward, given):
    def run(*args, **kwargs):
        given[path] = output = forward(*args, **kwargs)
        return output

    return run


def _hidden(passed):
    """The hidden states among the results of a block."""
    return next(leaf for leaf in tree_leaves(passed) if isinstance(leaf, torch.Tensor))


def _has_nan(value):
    """Whether what has rows has NaN; the mean of no label is NaN, too."""
    return any(leaf.is_floating_point() and leaf.dim() > 0 and bool(leaf.isnan().any()) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _require_alike(given, hidden):
    """The modules before the blocks give what can be added to what a block gets: nothing else of theirs is used in other stages."""
    for path, output in given.items():
        shape = tuple(output.shape) if isinstance(output, torch.Tensor) else None
        trailing = tuple(hidden.shape)[-len(shape):] if shape else None
        if not shape or any(size not in (1, whole) for size, whole in zip(shape, trailing)) or len(shape) > hidden.dim():
            what = f"the shape {shape}" if shape else f"a {type(output).__name__}"
            raise NotImplementedError(f"{path} gives {what} and blocks compute {tuple(hidden.shape)}: stages behind the first one do not have it; expected what "
                                      "is added to the input of the first block")
