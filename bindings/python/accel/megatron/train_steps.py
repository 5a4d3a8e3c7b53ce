# SPDX-License-Identifier: Apache-2.0
"""The steps of Megatron-LM's models: what a micro-batch is made of, how the model is called with it, and what its loss is.

A step's forward_step(iterator, model) takes a micro-batch from an iterator, calls the model (calls.py), and returns its output and the function of it that
has the loss: (loss, values to report), the mean of a micro-batch; or (sum, count, sums to report), where the step is that of the mean over all
counted items. Losses of a program may be either. With context parallelism the loss of each rank has the positions of that rank, so that the mean over
the ranks is the loss.
"""

import abc
import functools

import torch
import torch.nn.functional as F  # noqa: N812

from ..engine.device_copy import to_device
from ..state.job import current
from .calls import context_coordinate, context_ranks


class AbstractTrainStep(abc.ABC):
    """A step. Subclasses have the functions get_batch, loss_func and forward_step, which the methods below make."""

    model_output_class = None  # what a call of the engine returns with `loss` and `logits`; None: the loss
    counts = False
    _MASK = 2  # its place in what get_batch gives

    def __init__(self, name):
        super().__init__()
        self.name = name

    def get_batch_func(self, accelerator, megatron_dataset_flag):
        """get_batch(iterator): the inputs of the next micro-batch."""

    def get_forward_step_func(self):
        """forward_step(iterator, model)."""

    def get_loss_func(self, accelerator):
        """loss_func(..., output of the model)."""

    def _prepare(self, accelerator, args, output_class):
        """Sets what all steps have: functions of the program in the place of their own."""
        plugin = accelerator.state.megatron_lm_plugin
        self.device, self.is_sum = torch.device(str(accelerator.device)), plugin.calculate_per_token_loss
        self.checks_nan = getattr(args, "check_for_nan_in_loss_and_grad", True)
        own_batch = self.get_batch_func(accelerator, args.megatron_dataset_flag)
        self.get_batch = plugin.custom_get_batch_function or own_batch
        self.counts = self.is_sum and plugin.custom_get_batch_function is None and plugin.custom_loss_function is None
        if args.model_return_dict:
            from transformers import modeling_outputs

            self.model_output_class = getattr(modeling_outputs, output_class)
        return plugin.custom_loss_function

    def count(self, micro_batch):
        """How many tokens of a micro-batch count on this rank, known before its loss; None where only a function of the program says so."""
        if not self.counts:
            return None
        mask = self.get_batch(iter([micro_batch]))[self._MASK]
        return 0 if mask is None or context_coordinate(current()) != 0 else int(mask.sum())

    def _next(self, iterator):
        return to_device(next(iterator), self.device)

    def _masked(self, losses, mask, name, **others):
        """The loss of tokens of which `mask` counts some, 1 for yes."""
        mask = mask.reshape(-1).float()
        total, count = (losses.float().reshape(-1) * mask).sum(), mask.sum()
        if self.checks_nan and total.isnan():
            raise AssertionError("found NaN in the loss of this rank's micro-batch: expected numbers; check_for_nan_in_loss_and_grad=False of "
                                 "other_megatron_args leaves it to the loss scale")
        if self.is_sum:
            # Each rank of a sequence counts all of its tokens: one of them says so to the sum over the ranks.
            own = int(count) if context_coordinate(current()) == 0 else 0
            return total, own, {name: total.detach(), **others}
        loss = total * context_ranks(current()) / count.clamp(min=1)
        return loss, {name: loss.detach(), **others}


class BertTrainStep(AbstractTrainStep):
    """Masked words, and the order of sentences where the model has it; or classification."""

    _MASK = 3

    def __init__(self, accelerator, args):
        super().__init__("BertTrainStep")
        own = self._prepare(accelerator, args, "SequenceClassifierOutput")
        self.loss_func = own or self.get_loss_func(accelerator, args.pretraining_flag, args.num_labels)
        self.forward_step = self.get_forward_step_func(args.pretraining_flag, args.bert_binary_head)
        self.counts = self.counts and args.pretraining_flag

    def get_batch_func(self, accelerator, megatron_dataset_flag):
        def get_batch_megatron(data_iterator):
            data = self._next(data_iterator)
            return (data["text"].long(), data["types"].long(), data["is_random"].long(), data["loss_mask"].float(), data["labels"].long(),
                    data["padding_mask"].long())

        def get_batch_transformer(data_iterator):
            data = self._next(data_iterator)
            labels = data["labels"].long() if "labels" in data else None
            types = data["token_type_ids"].long() if "token_type_ids" in data else None
            order = data["next_sentence_label"].long() if "next_sentence_label" in data else None
            return (data["input_ids"].long(), types, order, None if labels is None else (labels != -100).float(), labels,
                    data["attention_mask"].long())

        return get_batch_megatron if megatron_dataset_flag else get_batch_transformer

    def get_loss_func(self, accelerator, pretraining_flag=True, num_labels=None):
        def loss_func_pretrain(loss_mask, sentence_order, output_tensor):
            losses, order_logits = output_tensor
            if order_logits is None or sentence_order is None:
                return self._masked(losses, loss_mask, "lm loss")
            mask = loss_mask.reshape(-1).float()
            lm_loss = (losses.float().reshape(-1) * mask).sum() / mask.sum().clamp(min=1)
            order_loss = F.cross_entropy(order_logits.reshape(-1, 2).float(), sentence_order.reshape(-1), ignore_index=-1)
            return lm_loss + order_loss, {"lm loss": lm_loss.detach(), "sop loss": order_loss.detach()}

        def loss_func_finetune(labels, logits):
            if num_labels == 1:
                loss = F.mse_loss(logits.reshape(-1), labels.reshape(-1).to(logits.dtype))
            elif labels.dtype in (torch.long, torch.int):
                loss = F.cross_entropy(logits.reshape(-1, num_labels), labels.reshape(-1))
            else:
                loss = F.binary_cross_entropy_with_logits(logits, labels)
            return loss, {"loss": loss.detach()}

        return loss_func_pretrain if pretraining_flag else loss_func_finetune

    def get_forward_step_func(self, pretraining_flag=True, bert_binary_head=False):
        def forward_step(data_iterator, model):
            tokens, types, sentence_order, loss_mask, labels, padding_mask = self.get_batch(data_iterator)
            if pretraining_flag:
                output = model(tokens, padding_mask, tokentype_ids=types if bert_binary_head else None, lm_labels=labels)
                return output, functools.partial(self.loss_func, loss_mask, sentence_order)
            return model(tokens, padding_mask, tokentype_ids=types), functools.partial(self.loss_func, labels)

        return forward_step


class GPTTrainStep(AbstractTrainStep):
    """The next token: the labels are the ids one to the left, with the end token appended. Tokens of padding, which is the end token, do not count."""

    def __init__(self, accelerator, args):
        super().__init__("GPTTrainStep")
        if args.eos_token_id is None:
            raise ValueError("GPTTrainStep: the configuration of the model has no eos_token_id, which ends the labels of each row; expected it there, or "
                             "other_megatron_args={'eos_token_id': ...}")
        self.eod_token = self.pad_token = args.eos_token_id
        self.reset_position_ids, self.reset_attention_mask = args.reset_position_ids, args.reset_attention_mask
        self.eod_mask_loss, self.return_logits = args.eod_mask_loss, args.return_logits
        own = self._prepare(accelerator, args, "CausalLMOutputWithCrossAttentions")
        self.loss_func = own or self.get_loss_func(accelerator)
        self.forward_step = self.get_forward_step_func()

    def get_batch_func(self, accelerator, megatron_dataset_flag):
        def get_batch_megatron(data_iterator):
            return self._of_tokens(self._next(data_iterator)["text"].long())

        def get_batch_transformer(data_iterator):
            tokens = self._next({"input_ids": batch["input_ids"]} for batch in [next(data_iterator)])["input_ids"].long()
            return self._of_tokens(torch.cat([tokens, torch.full_like(tokens[:, :1], self.eod_token)], dim=1))

        return get_batch_megatron if megatron_dataset_flag else get_batch_transformer

    def _of_tokens(self, tokens_and_next):
        """Tokens, labels, the mask of those that count, the mask of attention (None: each token sees those before it), and positions."""
        tokens, labels = tokens_and_next[:, :-1].contiguous(), tokens_and_next[:, 1:].contiguous()
        loss_mask = (tokens != self.pad_token).float()
        if self.eod_mask_loss:
            loss_mask[tokens == self.eod_token] = 0.0
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        attention_mask = None
        if self.reset_position_ids or self.reset_attention_mask:
            ends = (tokens == self.eod_token).int()
            document = ends.cumsum(1) - ends  # an end belongs to what it ends
            if self.reset_position_ids:
                begins = torch.where(torch.nn.functional.pad(ends[:, :-1], (1, 0)) == 1, positions, 0).cummax(1).values
                positions = positions - begins
            if self.reset_attention_mask:
                sees = torch.ones(tokens.shape[1], tokens.shape[1], device=tokens.device).tril().bool()
                attention_mask = ~(sees & (document.unsqueeze(1) == document.unsqueeze(2))).unsqueeze(1)
        return tokens, labels, loss_mask, attention_mask, positions

    def get_loss_func(self, accelerator):
        def loss_func(loss_mask, output_tensor):
            losses, others = (output_tensor[0], {"logits": output_tensor[1].detach()}) if self.return_logits else (output_tensor, {})
            return self._masked(losses, loss_mask, "lm loss", **others)

        return loss_func

    def get_forward_step_func(self):
        def forward_step(data_iterator, model):
            tokens, labels, loss_mask, attention_mask, position_ids = self.get_batch(data_iterator)
            return model(tokens, position_ids, attention_mask, labels=labels), functools.partial(self.loss_func, loss_mask)

        return forward_step


class T5TrainStep(AbstractTrainStep):
    """Texts to texts. The labels of padding are -100."""

    def __init__(self, accelerator, args):
        super().__init__("T5TrainStep")
        own = self._prepare(accelerator, args, "Seq2SeqLMOutput")
        self.loss_func = own or self.get_loss_func(accelerator)
        self.forward_step = self.get_forward_step_func()

    @staticmethod
    def attn_mask_postprocess(attention_mask):
        """From the mask of tokens, 1 for those that are there, the pairs that do not see each other."""
        return attention_mask.unsqueeze(1) * attention_mask.unsqueeze(2) < 0.5

    @staticmethod
    def get_decoder_mask(seq_length, device):
        """The pairs of which the second is behind the first."""
        return torch.tril(torch.ones((1, seq_length, seq_length), device=device)) < 0.5

    @staticmethod
    def get_enc_dec_mask(attention_mask, dec_seq_length, device):
        """The pairs of a token of the decoder and one of the encoder that is padding."""
        return torch.ones((attention_mask.shape[0], dec_seq_length, 1), device=device) * attention_mask.unsqueeze(1) < 0.5

    def get_batch_func(self, accelerator, megatron_dataset_flag):
        def get_batch_megatron(data_iterator):
            data = self._next(data_iterator)
            return (data["text_enc"].long(), data["text_dec"].long(), data["loss_mask"].float(), data["labels"].long(), data["enc_mask"] < 0.5,
                    data["dec_mask"] < 0.5, data["enc_dec_mask"] < 0.5)

        def get_batch_transformer(data_iterator):
            data = self._next(data_iterator)
            labels, mask = data["labels"].long(), data["attention_mask"].long()
            if "decoder_input_ids" in data:
                decoded = data["decoder_input_ids"].long()
            else:
                decoded = F.pad(labels[..., :-1], (1, 0)).masked_fill(F.pad(labels[..., :-1], (1, 0)) == -100, 0)
            length = decoded.shape[1]
            return (data["input_ids"].long(), decoded, (labels != -100).float(), labels, self.attn_mask_postprocess(mask),
                    self.get_decoder_mask(length, decoded.device), self.get_enc_dec_mask(mask, length, decoded.device))

        return get_batch_megatron if megatron_dataset_flag else get_batch_transformer

    def get_loss_func(self, accelerator):
        return lambda loss_mask, output_tensor: self._masked(output_tensor, loss_mask, "lm loss")

    def get_forward_step_func(self):
        def forward_step(data_iterator, model):
            encoded, decoded, loss_mask, labels, enc_mask, dec_mask, enc_dec_mask = self.get_batch(data_iterator)
            output = model(encoded, decoded, enc_mask, dec_mask, enc_dec_mask, tokentype_ids=None, lm_labels=labels)
            return output, functools.partial(self.loss_func, loss_mask)

        return forward_step
