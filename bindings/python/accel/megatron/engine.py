# SPDX-License-Identifier: Apache-2.0
"""The prepared model under Megatron-LM's settings: a call in training is a whole step."""

import contextlib

import torch

from .. import capi
from ..engine.values import to_engine
from ..state.job import current
from ..tensors.tensor import backward_options
from ..training.prepared_forward import EngineModel
from . import groups, train_steps
from .arguments import get_args
from .calls import as_megatron
from .staged_steps import StagedSteps
from .step_log import StepLog

_STEPS = {"bert": train_steps.BertTrainStep, "gpt": train_steps.GPTTrainStep, "t5": train_steps.T5TrainStep}


class MegatronEngine(EngineModel):
    """A model with its optimizer and schedule, each of which is prepared, or None. In training a call with the batch of this rank drops the gradients,
    goes forward and backward through its micro-batches, exchanges and clips gradients, updates the parameters, and steps the schedule; in evaluation it
    only goes forward. It returns the loss, averaged over micro-batches and data ranks, or what the train step says (`model_output_class`).
    `module` is the prepared model."""

    def __init__(self, accelerator, model, optimizer=None, scheduler=None):
        super().__init__(model)
        self.accelerator, self.optimizer, self.scheduler = accelerator, optimizer, scheduler
        plugin, args = accelerator.state.megatron_lm_plugin, get_args()
        self.plugin = plugin
        if plugin.custom_train_step_class is not None:
            self.train_step_handler = plugin.custom_train_step_class(args, **(plugin.custom_train_step_kwargs or {}))
        elif args.model_type_name in _STEPS:
            self.train_step_handler = _STEPS[args.model_type_name](accelerator, args)
        else:
            raise ValueError(f"Unsupported model type: {args.model_type_name}: expected one of {', '.join(_STEPS)}, or custom_train_step_class of the plugin")
        self.iteration, self._norm = 0, None
        self._called = [as_megatron(model, args)]  # in a list: it is no part of this module
        self._stages = StagedSteps(self) if plugin.pp_degree > 1 else None
        self._log = None if args.tensorboard_dir is None else StepLog(accelerator, args)

    @property
    def base_model(self):
        """The prepared model, by Megatron's name."""
        return self.module

    def get_module_config(self):
        """The configuration of the model."""
        return self.accelerator.unwrap_model(self.module).config

    def train(self, mode=True):
        """Calls are steps from here on. Results of evaluations go to tensorboard_dir."""
        super().train(mode)
        if mode and self.iteration > 0:
            self.log_eval_results()
        return self

    def eval(self):
        """Calls only go forward from here on."""
        return self.train(False)

    def forward(self, **batch_data):
        if self.training:
            values, skipped, norm, _ = self.train_step(**batch_data)
            if self._log is not None:
                self._log.add(self, values, skipped, norm)
        else:
            values = self.eval_step(**batch_data)
            if self._log is not None:
                self._log.add_evaluation(values)
        loss = sum(value for value in values.values() if value.dim() == 0)
        output_class = getattr(self.train_step_handler, "model_output_class", None)
        return loss if output_class is None else output_class(loss=loss, logits=values.get("logits"))

    def train_step(self, **batch_data):
        """(values by name, whether the update was left out, the norm of the gradients or None, None)"""
        parts = self._micro_batches(batch_data)
        self.zero_grad()
        values = self._compute(parts) if self._stages is None else self._stages.train(batch_data, parts)
        skipped = self._update()
        self.iteration += 1
        args = get_args()
        args.iteration, args.consumed_train_samples = self.iteration, args.consumed_train_samples + self.plugin.global_batch_size
        return values, skipped, self._norm, None

    def _compute(self, parts):
        """Forwards and backwards of the micro-batches. The values by name."""
        iterator, results, accelerator = iter([part for part, _ in parts]), [], self.accelerator
        weight = self.weight_of_items(parts)
        try:
            for number, (_, share) in enumerate(parts, 1):
                is_last = number == len(parts)
                accelerator.sync_gradients = is_last
                with contextlib.nullcontext() if is_last else accelerator.no_sync(self):
                    results.append(self._run(iterator))
                    self._backward(results[-1], share, weight)
        finally:
            accelerator.sync_gradients = True
        return self.values_of(results, parts)

    def follow_loaded_state(self):
        """Goes on behind the step of a training state that was loaded: that of the schedule, or else of the optimizer."""
        steps = [int(state["step"]) for state in self.optimizer.state.values() if "step" in state] if self.optimizer is not None else []
        self.iteration = self.scheduler.last_epoch if self.scheduler is not None else max(steps, default=self.iteration)
        args = get_args()
        args.iteration = self.iteration
        args.consumed_train_samples = self.iteration * self.plugin.global_batch_size if self.scheduler is None else self.scheduler.samples

    def eval_step(self, **batch_data):
        """The values by name."""
        parts = self._micro_batches(batch_data)
        iterator = iter([part for part, _ in parts])
        with torch.no_grad():
            values = self.values_of([self._run(iterator) for _ in parts], parts) if self._stages is None else self._stages.evaluate(parts)
        get_args().consumed_valid_samples += self.plugin.global_batch_size
        return values

    def get_batch_data_iterator(self, batch_data):
        """The micro-batches of a batch."""
        return iter([part for part, _ in self._micro_batches(batch_data)])

    def _micro_batches(self, batch):
        """[(micro-batch, its share of the rows)]; a short batch has fewer, or a short last one."""
        if not batch:
            raise ValueError("the engine of Megatron-LM's settings was called without a batch: expected model(**batch), tensors with a row in dimension 0 for "
                             "each sample")
        rows = len(next(iter(batch.values())))
        size = rows if self.plugin.num_micro_batches == 1 else self.plugin.micro_batch_size
        return [({name: value[begin:begin + size] for name, value in batch.items()}, min(size, rows - begin) / rows) for begin in range(0, rows, size)]

    def _run(self, iterator):
        """The result of the step's loss function for the next micro-batch."""
        output, loss_of = self.train_step_handler.forward_step(iterator, self._called[0])
        return loss_of(output)

    def weight_of_items(self, parts):
        """The factor of the sum of losses of a micro-batch, so that the mean over the ranks is that over all items of the step; None where the
        train step does not know their number before."""
        count = getattr(self.train_step_handler, "count", None)
        counts = [None] if count is None else [count(part) for part, _ in parts]
        if None in counts:
            return None
        total = groups.sum_over_gradient_ranks(torch.tensor([float(sum(counts))]))
        return groups.gradient_ranks() / max(float(total), 1.0)

    def _backward(self, result, share, weight):
        steps = self.accelerator.gradient_accumulation_steps  # by which a backward divides
        if len(result) == 3 and weight is not None:
            self.accelerator._backward(result[0] * (weight * steps))
        elif len(result) == 3:
            loss, count, _ = result
            capi.accel_backward_sum(self.accelerator._current(), to_engine(loss), int(count), backward_options())
        else:
            self.accelerator._backward(result[0] * (share * steps))

    def _update(self):
        """Clips, updates, and steps the schedule. Whether the update was left out."""
        clipping = self.plugin.gradient_clipping
        self._norm = float(self.accelerator._clip_grad_norm(self.module.parameters(), clipping)) if clipping > 0 else None
        if self.optimizer is None:
            return False
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        return bool(self.optimizer.step_was_skipped)

    def zero_grad(self, set_to_none=True):
        """Drops the gradients; the next call in training does so, too."""
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        else:
            self.module.zero_grad(set_to_none)

    @staticmethod
    def values_of(results, parts):
        """The reported values of all micro-batches and data ranks; others, such as logits, are of this rank and joined."""
        named = [result[-1] for result in results]
        names = [name for name, value in named[0].items() if value.dim() == 0]
        whole = {name: torch.cat([one[name] for one in named]) for name in named[0] if name not in names}
        if not names:
            return whole
        if len(results[0]) == 3:
            sums = torch.stack([sum(one[name].detach().float() for one in named) for name in names])
            count = sums.new_tensor([float(sum(int(result[1]) for result in results))])
            total = groups.sum_over_gradient_ranks(torch.cat([sums, count]))
            means = total[:-1] / total[-1].clamp(min=1)
        else:
            means = torch.stack([sum(one[name].detach().float() * share for one, (_, share) in zip(named, parts)) for name in names])
            means = groups.mean_over_gradient_ranks(means)
        return {**dict(zip(names, means.unbind())), **whole}

    # What updates in the place of the program, by the names of DeepSpeed's wrapper.

    def backward(self, loss, sync_gradients=True, **kwargs):
        """Nothing: the call with the batch did it."""

    def get_global_grad_norm(self):
        """The norm of the gradients of the latest update, before they were clipped; None before the first, and without gradient_clipping."""
        return self._norm

    def save_checkpoint(self, output_dir):
        """The training state, as save_state() writes it."""
        self.accelerator.save_state(output_dir)

    def load_checkpoint(self, input_dir):
        self.accelerator.load_state(input_dir)

    def log_eval_results(self):
        """Writes the mean of what evaluations since the latest call gave to tensorboard_dir, if there is one."""
        if self._log is not None:
            self._log.end_evaluation(self.iteration)

    def __repr__(self):
        return f"MegatronEngine({current() and self.module!r})"
