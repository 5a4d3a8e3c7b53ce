# SPDX-License-Identifier: Apache-2.0
"""MegatronLMPlugin: the settings themselves, from code and from MEGATRON_LM_*."""

import dataclasses
import os
import warnings

from ..generated import settings
from ..state.handlers import whole_number
from ..state.options import read_variables
from .model_configs import parse_model_config

_SIZES = ("tp_degree", "pp_degree", "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "num_micro_batches",
          "recompute_num_layers")
_CHOICES = {"recompute_granularity": ("full", "selective"), "recompute_method": ("uniform", "block"),
            "lr_decay_style": ("constant", "linear", "cosine", "inverse-square-root"), "weight_decay_incr_style": ("constant", "linear", "cosine")}
# The names that Megatron's arguments have for fields; others have the field's own.
_ARGUMENTS = {"tensor_model_parallel_size": "tp_degree", "pipeline_model_parallel_size": "pp_degree", "sequence_parallel": "sequence_parallelism",
              "clip_grad": "gradient_clipping"}
_SAME_NAME = (
    "pipeline_model_parallel_split_rank", "num_layers_per_virtual_pipeline_stage", "DDP_impl", "use_distributed_optimizer", "num_micro_batches",
    "consumed_samples", "no_wd_decay_cond", "scale_lr_cond", "lr_mult", "megatron_dataset_flag", "eval_iters", "eval_interval", "use_custom_fsdp",
    "no_load_optim", "eod_mask_loss", "no_save_optim", "optimizer_cpu_offload", "overlap_cpu_optimizer_d2h_h2d", "use_precision_aware_optimizer",
    "decoder_last_pipeline_num_layers", "recompute_granularity", "recompute_method", "recompute_num_layers", "attention_backend",
    "expert_model_parallel_size", "context_parallel_size", "attention_dropout", "hidden_dropout", "attention_softmax_in_fp32",
    "expert_tensor_parallel_size", "calculate_per_token_loss", "use_rotary_position_embeddings")
_OF_SCHEDULE = ("train_iters", "lr_warmup_iters", "train_samples", "lr_warmup_samples", "lr_decay_iters", "lr_decay_samples", "lr_warmup_fraction",
                "lr_decay_style", "weight_decay_incr_style", "start_weight_decay", "end_weight_decay", "min_lr")
_LOGGED = ("log_params_norm", "log_num_zeros_in_grad", "log_throughput", "log_progress", "log_timers_to_tensorboard", "log_batch_size_to_tensorboard",
           "log_validation_ppl_to_tensorboard", "log_memory_to_tensorboard", "log_world_size_to_tensorboard", "log_learning_rate_to_tensorboard",
           "log_loss_scale_to_tensorboard")


@dataclasses.dataclass
class MegatronLMPlugin(settings.MegatronLMPlugin):
    """How a model is split, sharded and trained, in Megatron-LM's words (docs/megatron.md). None: from MEGATRON_LM_*, else the default: one rank along
    each axis, one micro-batch, gradients clipped to a norm of 1. context_parallel_size is 1 unless it is said, where Accelerate takes 2.
    `megatron_lm_default_args` has the settings under the names of Megatron's arguments."""

    def __post_init__(self):
        default = {field.name: field.default for field in dataclasses.fields(self)}
        # What the program, or a variable, has said: only this is compared with a model, and reported where it has no effect.
        self.said = {name for name, (variable, *_) in self._variables.items() if getattr(self, name) is not None or variable in os.environ}
        self.said |= {name for name in default if name not in self._variables and getattr(self, name) != default[name]}
        read_variables(self, *self._variables)
        for name in _SIZES:
            setattr(self, name, whole_number(name, getattr(self, name), 1))
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(known)}")
        if not self.gradient_clipping >= 0:
            raise ValueError(f"gradient_clipping={self.gradient_clipping!r}: expected the largest norm, or 0 for none")
        self.DDP_impl = "local" if self.pp_degree > 1 or self.use_distributed_optimizer else "torch"
        if self.consumed_samples is not None:
            self.consumed_samples.extend([0] * (3 - len(self.consumed_samples)))
        self.megatron_lm_default_args = {**{name: getattr(self, field) for name, field in _ARGUMENTS.items()},
                                         **{name: getattr(self, name) for name in _SAME_NAME}}
        if self.tensorboard_dir is not None:
            self.megatron_lm_default_args["tensorboard_dir"] = self.tensorboard_dir
            if self.set_all_logging_options:
                self.set_tensorboard_logging_options()
        self.megatron_lm_default_args.update(self.other_megatron_args or {})
        self.arguments = None  # of Megatron, once prepare() has them all

    def set_network_size_args(self, model, batch_data=None):
        """Reads the sizes of a model from its configuration, by a function for its type."""
        parse_model_config(self, model, batch_data)

    def set_mixed_precision(self, mixed_precision):
        if mixed_precision in ("fp16", "bf16"):
            self.megatron_lm_default_args[mixed_precision] = True
        if mixed_precision == "bf16":
            self.DDP_impl = self.megatron_lm_default_args["DDP_impl"] = "local"

    def set_training_args(self, micro_batch_size, dp_degree):
        """The rows of a micro-batch, and over how many ranks data are shared out."""
        self.micro_batch_size, self.data_parallel_size = micro_batch_size, dp_degree
        self.global_batch_size = dp_degree * micro_batch_size * self.num_micro_batches
        self.megatron_lm_default_args.update({name: getattr(self, name) for name in ("data_parallel_size", "micro_batch_size", "global_batch_size")})

    def set_optimizer_type(self, optimizer):
        """The settings of an optimizer of the kind of Adam or SGD. A ValueError for another one."""
        name, defaults = type(optimizer).__name__.lower(), optimizer.defaults
        if "adam" in name:
            of_kind = {"optimizer": "adam", "adam_beta1": defaults["betas"][0], "adam_beta2": defaults["betas"][1], "adam_eps": defaults["eps"]}
        elif "sgd" in name:
            of_kind = {"optimizer": "sgd", "sgd_momentum": defaults["momentum"]}
        else:
            raise ValueError(f"Optimizer {name} is not supported by Megatron-LM: expected one of the kind of Adam or SGD")
        self.megatron_lm_default_args.update(of_kind, lr=defaults["lr"], weight_decay=defaults["weight_decay"])

    def set_scheduler_args(self, scheduler):
        """The lengths of a schedule: those of the plugin, else those of a MegatronLMDummyScheduler, which count the batches of all data ranks."""
        ranks = self.megatron_lm_default_args["data_parallel_size"]
        if self.train_iters is None and scheduler.total_num_steps is not None:
            self.train_iters = scheduler.total_num_steps // ranks
            if self.train_samples is not None:
                self.train_samples = None
                warnings.warn("Ignoring `train_samples` as `train_iters` based on scheduler is being used for training.", stacklevel=2)
        if self.lr_warmup_iters is None and self.train_iters is not None:
            self.lr_warmup_iters = scheduler.warmup_num_steps // ranks
            if self.lr_warmup_samples is not None:
                warnings.warn("Ignoring `lr_warmup_samples` as `lr_warmup_iters` based on scheduler is being used for training.", stacklevel=2)
            self.lr_warmup_samples = 0
        self.megatron_lm_default_args.update({name: getattr(self, name) for name in _OF_SCHEDULE})

    def set_tensorboard_logging_options(self):
        """Everything that is logged."""
        self.megatron_lm_default_args.update(dict.fromkeys(_LOGGED, True))
