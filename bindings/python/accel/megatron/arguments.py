# SPDX-License-Identifier: Apache-2.0
"""Megatron's arguments: one namespace for the job, filled by prepare()."""

import argparse
import logging

from ..state.job import Job
from .model_configs import MODEL_CONFIGS_TO_MEGATRON_PARSERS  # noqa: F401  (filled by importing)

_logger = logging.getLogger(__name__)

# Arguments that act here, with their defaults, beside those that the plugin and the configuration of a model set.
DEFAULTS = {
    "model_type_name": None, "pretraining_flag": True, "num_labels": None, "bert_binary_head": False, "model_return_dict": True, "vocab_file": None,
    "eos_token_id": None, "reset_position_ids": False, "reset_attention_mask": False, "check_for_nan_in_loss_and_grad": True, "return_logits": False,
    "lr_warmup_init": 0.0, "lr": None, "weight_decay": 0.0, "optimizer": None, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8,
    "sgd_momentum": 0.0, "eod_mask_loss": False, "tensorboard_dir": None, "iteration": 0, "consumed_train_samples": 0, "consumed_valid_samples": 0,
    "consumed_test_samples": 0, "train_iters": None, "train_samples": None, "lr_decay_iters": None, "lr_decay_samples": None, "lr_warmup_iters": None,
    "lr_warmup_samples": None, "lr_warmup_fraction": None, "lr_decay_style": "linear", "weight_decay_incr_style": "constant",
    "start_weight_decay": None, "end_weight_decay": None, "min_lr": 0.0, "log_params_norm": False, "seq_length": None,
    "micro_batch_size": None, "global_batch_size": None, "data_parallel_size": 1,
}


def get_args():
    """The namespace of the job."""
    plugin = Job.megatron_lm_plugin
    if plugin is None or plugin.arguments is None:
        raise RuntimeError("there are no arguments of Megatron-LM yet: expected Accelerator(megatron_lm_plugin=...) and its prepare() before")
    return plugin.arguments


def initialize(accelerator, extra_args_provider=None, args_defaults=None):
    """Fills the namespace: from the defaults, from the options of the command line that `extra_args_provider(parser)` adds, and from
    `args_defaults`, which count."""
    extra = {}
    if extra_args_provider is not None:
        parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
        parser = extra_args_provider(parser) or parser
        extra = vars(parser.parse_known_args()[0])
    plugin = accelerator.state.megatron_lm_plugin
    plugin.arguments = argparse.Namespace(**{**DEFAULTS, **extra, **(plugin.megatron_lm_default_args if args_defaults is None else args_defaults)})
    args = plugin.arguments
    args.rank, args.world_size = accelerator.process_index, accelerator.num_processes
    args.bert_binary_head = args.model_type_name == "bert" and args.pretraining_flag and args.num_labels == 2
    args.padded_vocab_size = getattr(args, "padded_vocab_size", getattr(args, "orig_vocab_size", None))
