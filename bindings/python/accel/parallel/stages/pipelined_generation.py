# SPDX-License-Identifier: Apache-2.0
"""Generation with a model of transformers in stages: each stage keeps the keys of its blocks, the last one chooses the tokens and passes them to the
first, and as many groups of rows as there are stages are under way.

The tokens are those that the whole model generates in one process, sampled ones too: the last rank draws with the random numbers of
the first, for all rows in each step.
"""

import torch
from transformers import DynamicCache, LogitsProcessorList

from ...state.process import PartialState
from .staged_generation import StagedGeneration


class StageCache(DynamicCache):
    """The keys of a stage. Attributes that a model reads of its first block are those of the stage's first one."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def get_seq_length(self, layer_idx=0):
        return super().get_seq_length(max(layer_idx, self.first))

    def get_mask_sizes(self, query_length, layer_idx):
        return super().get_mask_sizes(query_length, max(layer_idx, self.first))


class PipelinedGeneration(StagedGeneration):
    """With the prompts and settings of transformers."""

    def __call__(self, *prompts, **settings):
        model = self.pipeline.chain.model
        if "_original_forward" not in vars(model):  # extract_model_from_parallel() has taken the stages away
            return type(model).generate(model, *prompts, **settings)
        return super().__call__(*prompts, **settings)

    def batch(self, input_ids, attention_mask=None, *_, **__):
        return {"rows": torch.arange(len(input_ids)), "ids": input_ids,
                "mask": torch.ones_like(input_ids) if attention_mask is None else attention_mask}

    def share(self, plan):
        return Generation(self.pipeline, plan)

    def plan(self, input_ids=None, attention_mask=None, generation_config=None, **settings):
        model = self.pipeline.chain.model
        if not isinstance(input_ids, torch.Tensor) or input_ids.dim() != 2:
            raise ValueError("generate() of a model in stages needs input_ids of shape [rows, tokens] on the first rank")
        config, others = model._prepare_generation_config(generation_config, **settings)
        if others:
            raise ValueError(f"generate() of a model in stages knows no {', '.join(others)}; expected input_ids, attention_mask and settings")
        wrong = [name for name, usual in (("num_beams", 1), ("num_return_sequences", 1), ("return_dict_in_generate", False))
                 if (getattr(config, name, None) or usual) != usual]
        if wrong:
            raise NotImplementedError(f"{wrong[0]}={getattr(config, wrong[0])}: a model in stages generates a sequence a row, greedily or by sampling")
        limit = {name: getattr(config, name) for name in ("max_new_tokens", "max_length") if getattr(config, name) is not None}
        tokens = limit.get("max_new_tokens", limit.get("max_length", 20) - input_ids.shape[1])
        if tokens < 1:
            raise ValueError(f"{limit} leaves no token to generate after prompts of {input_ids.shape[1]}; expected max_new_tokens of at least 1")
        plan = {"rows": input_ids.shape[0], "prompt": input_ids.shape[1], "tokens": tokens, "config": config.to_dict(),
                "random": torch.get_rng_state()}
        torch.rand(1)  # the next call draws other numbers
        return plan


class Group:
    """Rows that pass through the stages together."""

    def __init__(self, first_block):
        self.cache, self.mask, self.sequences, self.unfinished = StageCache(first_block), None, None, None


class Generation:
    """A stage's share in the generation of a batch."""

    def __init__(self, pipeline, plan):
        self.stage, self.is_last, self.plan, self.groups = pipeline.stage, pipeline.is_last, plan, {}
        self.step_of_noise, self.noise = 0, None
        self.model, self.processors = pipeline.chain.model, None
        self.names = pipeline.chain.signature.parameters

    def _choose_as(self, model, device):
        from transformers import GenerationConfig

        self.config = GenerationConfig.from_dict(self.plan["config"])
        model._prepare_special_tokens(self.config, True, device=device)
        self.processors = model._get_logits_processor(generation_config=self.config, input_ids_seq_length=self.plan["prompt"],
                                                      logits_processor=LogitsProcessorList(), device=device)
        self.ends = self.config._eos_token_tensor
        self.generator = torch.Generator()
        self.generator.set_state(self.plan["random"])

    def __call__(self, value):
        if self.is_last and self.processors is None:  # here an error is one of the stage, which all ranks hear of
            self._choose_as(self.model, PartialState().device)
        rows, ids = value["rows"], value["ids"]
        group = self.groups.setdefault(int(rows[0]), Group(self.stage.begin))
        group.mask = value["mask"] if group.mask is None else torch.cat([group.mask, group.mask.new_ones(len(ids), 1)], dim=1)
        positions = (group.mask.long().cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1]:]
        named = {"input_ids": ids, "attention_mask": group.mask, "position_ids": positions, "past_key_values": group.cache, "use_cache": True}
        if "logits_to_keep" in self.names:
            named["logits_to_keep"] = 1
        output = self.stage.run(named, value.get("passed"))
        if not self.is_last:
            return {**value, "passed": output}
        return self._next(group, rows, ids, output.logits[:, -1])

    def _next(self, group, rows, ids, logits):
        """The value of the next round; None when all rows of the group are at their ends."""
        if group.sequences is None:
            group.sequences, group.unfinished = ids, torch.ones(len(ids), dtype=torch.long, device=ids.device)
        scores = self.processors(group.sequences, logits.to(copy=True, dtype=torch.float32))
        tokens = self._sampled(scores, rows) if self.config.do_sample else scores.argmax(-1)
        if self.ends is not None:
            tokens = tokens * group.unfinished + self.config._pad_token_tensor.to(tokens.device) * (1 - group.unfinished)
        group.sequences = torch.cat([group.sequences, tokens[:, None]], dim=1)
        if self.ends is not None:
            group.unfinished = group.unfinished * ~torch.isin(tokens, self.ends)
            if not group.unfinished.any():
                return None
        return {"rows": rows, "ids": tokens[:, None]}

    def _sampled(self, scores, rows):
        """torch.multinomial() of the probabilities of all rows."""
        step = self.groups[int(rows[0])].sequences.shape[1]
        if step != self.step_of_noise:
            self.step_of_noise = step
            self.noise = torch.empty(self.plan["rows"], scores.shape[-1]).exponential_(generator=self.generator)
        return (scores.softmax(-1) / self.noise[rows.cpu()].to(scores.device)).argmax(-1)

    def sequences(self):
        """All rows, those of groups that ended early filled up."""
        longest = max(group.sequences.shape[1] for group in self.groups.values())
        filled = [torch.nn.functional.pad(group.sequences, (0, longest - group.sequences.shape[1]), value=self._filler())
                  for _, group in sorted(self.groups.items())]
        return torch.cat(filled)

    def _filler(self):
        return 0 if self.config._pad_token_tensor is None else int(self.config._pad_token_tensor)
