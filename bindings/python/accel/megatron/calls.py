# SPDX-License-Identifier: Apache-2.0
"""Models of transformers as Megatron-LM's steps call them: tokens, positions and masks in; with labels the loss of each token comes out."""

import torch
import torch.nn.functional as F  # noqa: N812

from .. import capi
from ..parallel import split_sequences
from ..state.job import current

context_ranks = split_sequences.ranks_of


def context_coordinate(state):
    """Which positions of sequences this rank has, of those of the ranks that share them."""
    return capi.accel_mesh_coordinate(capi.accel_state_mesh(state), "context")


def _logits(output):
    return output.logits if hasattr(output, "logits") else output[0] if isinstance(output, (tuple, list)) else output


def _losses(logits, labels):
    """The loss of each token; a token whose label is -100 has 0."""
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none").view(labels.shape)


class GPT:
    """A decoder: model(tokens, position_ids, attention_mask, labels=None) has the logits, or with labels the losses, with `return_logits` both."""

    def __init__(self, model, args):
        self.model, self.return_logits = model, args.return_logits

    def __call__(self, tokens, position_ids=None, attention_mask=None, labels=None, **others):
        state = current()
        if context_ranks(state) > 1:
            given = [*([] if attention_mask is None else ["attention_mask"]), *others]
            if given:
                raise NotImplementedError(f"{', '.join(given)} with context_parallel_size above 1: each token sees all before it, and there are no other "
                                          "inputs; expected tokens, position_ids and labels only, and no reset_attention_mask")
            return self._on_positions(state, tokens, position_ids, labels)
        if attention_mask is not None:  # Megatron's is True where a token is not seen
            kind = next(self.model.parameters()).dtype
            attention_mask = torch.zeros(attention_mask.shape, dtype=kind, device=tokens.device).masked_fill(attention_mask, torch.finfo(kind).min)
            others = {**others, "attention_mask": attention_mask}
        logits = _logits(self.model(input_ids=tokens, position_ids=position_ids, use_cache=False, **others))
        if labels is None:
            return logits
        losses = _losses(logits, labels)
        return (losses, logits) if self.return_logits else losses

    def _on_positions(self, state, tokens, position_ids, labels):
        """This rank computes some positions. The losses of the others are 0."""
        if self.return_logits or labels is None:
            raise NotImplementedError("logits with context_parallel_size above 1: each rank has those of some positions; expected losses only")
        length = tokens.shape[1]
        if position_ids is None:
            position_ids = torch.arange(length, device=tokens.device).expand_as(tokens)
        tokens, positions, labels = tokens.clone(), position_ids.contiguous().clone(), labels.clone()
        places = torch.arange(length, device=tokens.device)
        parts = [tokens, positions, labels, places]
        with split_sequences.opened(state, parts, [1, 1, 1, 0], parts):
            losses = _losses(_logits(self.model(input_ids=tokens, position_ids=positions, use_cache=False)), labels)
        return losses.new_zeros(losses.shape[0], length).index_copy(1, places, losses)


class Bert:
    """An encoder: model(tokens, padding_mask, tokentype_ids=None, lm_labels=None) has (losses, logits of the sentences' order or None), and without labels
    the logits."""

    def __init__(self, model, args):
        self.model = model

    def __call__(self, tokens, padding_mask, tokentype_ids=None, lm_labels=None):
        output = self.model(input_ids=tokens, attention_mask=padding_mask, token_type_ids=tokentype_ids)
        if lm_labels is None:
            return _logits(output)
        logits = getattr(output, "prediction_logits", None)
        return _losses(_logits(output) if logits is None else logits, lm_labels), getattr(output, "seq_relationship_logits", None)


class T5:
    """An encoder with a decoder: model(encoded, decoded, three masks, lm_labels=None) has the logits, or the losses."""

    def __init__(self, model, args):
        self.model = model

    def __call__(self, tokens_enc, tokens_dec, enc_mask, dec_mask, enc_dec_mask, tokentype_ids=None, lm_labels=None):
        seen = (~enc_dec_mask[:, 0]).long()  # the same for each token of the decoder
        logits = _logits(self.model(input_ids=tokens_enc, attention_mask=seen, decoder_input_ids=tokens_dec, use_cache=False))
        return logits if lm_labels is None else _losses(logits, lm_labels)


def as_megatron(model, args):
    """The model as the steps of its type call it; of another type, which has a step of the program, as it is."""
    kind = {"gpt": GPT, "bert": Bert, "t5": T5}.get(args.model_type_name)
    if kind in (Bert, T5) and context_ranks(current()) > 1:
        raise NotImplementedError(f"context_parallel_size={context_ranks(current())}: sequences of models of the type {args.model_type_name!r} are not split; "
                                  "expected 1")
    return model if kind is None else kind(model, args)
