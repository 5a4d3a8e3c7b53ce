# SPDX-License-Identifier: Apache-2.0
"""Generation with GPT-2 and Llama of the engine in stages.

Sampled tokens are those of one process that draws with `multinomial()` for all rows in each step: the last rank draws with the default random
numbers of the first.
"""

import math

from ...state.random import get_rng_state, set_rng_state
from ...tensors import ops
from ...tensors.creation import arange, full, zeros
from ...tensors.tensor_type import is_tensor
from .staged_generation import StagedGeneration

_USUAL = {"max_new_tokens": 20, "do_sample": False, "temperature": 1.0, "top_k": 0, "eos_token_id": None, "pad_token_id": 0}


class ChainGeneration(StagedGeneration):
    """generate(input_ids, max_new_tokens=20, do_sample=False, temperature=1.0, top_k=0, eos_token_id=None, pad_token_id=0): the sequences, prompts
    of one length with the tokens behind them, [rows, tokens]. `eos_token_id` is a number or a list: a row that has one is filled up with
    `pad_token_id`, and ends the generation with the others."""

    def plan(self, input_ids=None, **settings):
        unknown = [name for name in settings if name not in _USUAL]
        if unknown:
            raise ValueError(f"generate() of a model of accel in stages knows no {', '.join(unknown)}; expected {', '.join(_USUAL)}")
        plan = {**_USUAL, **settings}
        if not is_tensor(input_ids) or len(input_ids.shape) != 2 or 0 in input_ids.shape:
            raise ValueError("generate() of a model in stages needs input_ids of shape [rows, tokens] on the first rank")
        for name, is_right, expected in (("max_new_tokens", plan["max_new_tokens"] >= 1, "at least 1"), ("temperature", plan["temperature"] > 0, "above 0"),
                                         ("top_k", plan["top_k"] >= 0, "0, which is all, or more")):
            if not is_right:
                raise ValueError(f"{name}={plan[name]}: expected {expected}")
        ends = plan["eos_token_id"]
        plan.update(ends=[] if ends is None else list(ends) if isinstance(ends, (list, tuple)) else [ends], tokens=plan["max_new_tokens"],
                    prompts=input_ids, random=get_rng_state())
        if plan["do_sample"]:
            ops.rand([1])  # the next call draws other numbers
        return plan

    def batch(self, input_ids, **_):
        return {"rows": arange(input_ids.shape[0]), "passed": input_ids}

    def share(self, plan):
        return ChainShare(self.pipeline, plan)


class Group:
    """Rows that pass through the stages together."""

    def __init__(self):
        self.cache, self.tokens, self.unfinished = [], [], None


class ChainShare:
    """A stage's share in the generation of a batch."""

    def __init__(self, pipeline, plan):
        self.stage, self.is_last, self.plan, self.groups = pipeline.stage, pipeline.is_last, plan, {}
        self.steps_of_noise, self.noise = 0, None

    def __call__(self, value):
        rows = value["rows"]
        group = self.groups.setdefault(int(rows[0].item()), Group())
        passed, group.cache = self.stage.run(value["passed"], group.cache)
        if not self.is_last:
            return {"rows": rows, "passed": passed}
        tokens = self._next(group, rows, passed[:, -1])
        group.tokens.append(tokens)
        ends = self.plan["ends"]
        if not ends:
            return {"rows": rows, "passed": tokens}
        for end in ends:
            group.unfinished = ops.logical_and(group.unfinished, tokens != end)
        return {"rows": rows, "passed": tokens} if group.unfinished.any().item() else None

    def _next(self, group, rows, scores):
        """The tokens behind those of the group, [rows, 1]."""
        tokens = self._sampled(group, rows, scores) if self.plan["do_sample"] else scores.argmax(-1, True)
        if not self.plan["ends"]:
            return tokens
        if group.unfinished is None:
            group.unfinished = ops.ones_like(tokens, dtype="bool")
        return ops.where(group.unfinished, tokens, ops.full_like(tokens, self.plan["pad_token_id"]))

    def _sampled(self, group, rows, scores):
        scores = scores.to(dtype="float32") / self.plan["temperature"]
        if 0 < self.plan["top_k"] < scores.shape[-1]:
            least = ops.topk(scores, self.plan["top_k"])[0][:, -1:]
            scores = ops.masked_fill(scores, scores < least, -math.inf)
        if len(group.tokens) == self.steps_of_noise:  # the first group of this step
            self.steps_of_noise += 1
            self.noise = self._draw([self.plan["prompts"].shape[0], scores.shape[-1]])
        noise = ops.index_select(self.noise, 0, rows.to(device="cpu")).to(device=scores.device)
        return (ops.softmax(scores, -1) / noise).argmax(-1, True)

    def _draw(self, shape):
        """The exponential numbers that multinomial() would draw for all rows, of the first rank's random numbers."""
        own = get_rng_state()
        set_rng_state(self.plan["random"])
        try:
            return ops.exponential_(zeros(*shape))
        finally:
            self.plan["random"] = get_rng_state()
            set_rng_state(own)

    def sequences(self):
        """All rows, those of groups that ended early filled up."""
        longest = max(len(group.tokens) for group in self.groups.values())
        rows = []
        for _, group in sorted(self.groups.items()):
            missing = full([group.tokens[0].shape[0], longest - len(group.tokens)], self.plan["pad_token_id"], dtype="int64")
            rows.append(ops.cat([*group.tokens, missing.to(device=group.tokens[0].device)], 1))
        tokens = ops.cat(rows, 0)
        return ops.cat([self.plan["prompts"].to(device=tokens.device), tokens], 1)
