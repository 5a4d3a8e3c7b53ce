# SPDX-License-Identifier: Apache-2.0
"""Stand-ins in a program of Megatron-LM for a schedule, and for loaders of its data."""

# The arguments of Megatron's data that have a default, by its names.
_DATA = {"data_path": None, "split": None, "train_data_path": None, "valid_data_path": None, "test_data_path": None, "eval_iters": 100,
         "eval_interval": 1000, "num_workers": 2, "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False, "seed": 1234,
         "vocab_file": None, "merge_file": None}
_WITHOUT_EFFECT = {"num_workers": "rows are read by the process itself", "seed": "rows come in the order that the datasets have them",
                   "eval_iters": "that of MegatronLMPlugin counts", "eval_interval": "that of MegatronLMPlugin counts"}


class MegatronLMDummyScheduler:
    """Stands for the schedule that the plugin describes, for an optimizer. The numbers count the batches of all data ranks."""

    def __init__(self, optimizer, total_num_steps=None, warmup_num_steps=0, **kwargs):
        self.optimizer, self.total_num_steps, self.warmup_num_steps, self.kwargs = optimizer, total_num_steps, warmup_num_steps, kwargs


class MegatronLMDummyDataLoader:
    """Stands for a loader of the data that custom_megatron_datasets_provider_function of the plugin makes: the first one given to prepare() for
    training, the second for evaluation, the third for tests. `dataset_kwargs` are Megatron's arguments, micro_batch_size among them."""

    def __init__(self, **dataset_kwargs):
        self.dataset_args = {**_DATA, **dataset_kwargs, "megatron_dataset_flag": True}
        self._said = set(dataset_kwargs)

    def without_effect(self):
        """(what, why) of the arguments that were given and change nothing."""
        for name, why in _WITHOUT_EFFECT.items():
            if name in self._said:
                yield f"{name} of a MegatronLMDummyDataLoader", why

    def set_megatron_data_args(self):
        """Megatron's arguments get the values of this loader."""
        from .arguments import get_args

        vars(get_args()).update(self.dataset_args)

    def get_train_valid_test_datasets_provider(self, accelerator):
        """The plugin's function, which makes three datasets from three numbers of samples."""
        provider = accelerator.state.megatron_lm_plugin.custom_megatron_datasets_provider_function
        if provider is None:
            raise NotImplementedError("megatron_dataset_flag: the indexed datasets of Megatron-LM are not in libaccel; expected "
                                      "custom_megatron_datasets_provider_function, or loaders of the program")
        return provider

    def build_train_valid_test_data_iterators(self, accelerator):
        """Loaders over the three datasets, whose batches have the rows of all micro-batches of a step, to be prepared; None for a dataset that is none."""
        from .loaders import loaders_of_datasets  # imports torch

        return loaders_of_datasets(accelerator, self.get_train_valid_test_datasets_provider(accelerator))
