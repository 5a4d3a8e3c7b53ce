# SPDX-License-Identifier: Apache-2.0
"""Plans by which layers are split over tp_degree ranks, of models of transformers that have none of their own."""

_GPT2 = {"transformer.h.*.attn.c_attn": "packed_colwise(3)", "transformer.h.*.attn.c_proj": "rowwise", "transformer.h.*.mlp.c_fc": "colwise",
         "transformer.h.*.mlp.c_proj": "rowwise"}


def complete(model, ranks):
    """Gives a GPT-2 the plan of Megatron-LM's. Its attention takes the width of queries from its configuration, which becomes that of a rank's heads."""
    has_plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if ranks == 1 or has_plan or model.config.model_type != "gpt2" or not hasattr(model, "transformer"):
        return
    if model.config.n_head % ranks != 0:
        raise ValueError(f"tp_degree={ranks} does not divide the {model.config.n_head} heads of the model: expected a divisor")
    model._tp_plan = dict(_GPT2)
    for block in model.transformer.h:
        block.attn.split_size //= ranks
