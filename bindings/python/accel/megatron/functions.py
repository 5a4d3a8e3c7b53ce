# SPDX-License-Identifier: Apache-2.0
"""The functions of accelerate.utils.megatron_lm. prepare() does what they do, for the objects that it is given."""

from .arguments import get_args, initialize  # noqa: F401

_ANOTHER = "expected accelerator.prepare(model, ...), or custom_model_provider_function of the plugin"


def prepare_model_optimizer_scheduler(accelerator):
    """The model that custom_model_provider_function makes, with an optimizer and a schedule by Megatron's arguments."""
    from .prepare import model_of_program

    model = model_of_program(accelerator.state.megatron_lm_plugin)
    if model is None:
        raise NotImplementedError(f"prepare_model_optimizer_scheduler(): the models of Megatron-LM are not in libaccel; {_ANOTHER}")
    optimizer = prepare_optimizer(accelerator, model)
    return model, optimizer, prepare_scheduler(accelerator, optimizer, None)


def prepare_optimizer(accelerator, model):
    """An optimizer by Megatron's arguments, whose groups follow the plugin's conditions; to be prepared."""
    from .parameter_groups import make_optimizer

    return make_optimizer(get_args(), model, accelerator.state.megatron_lm_plugin)


def prepare_scheduler(accelerator, optimizer, scheduler):
    """A schedule by Megatron's arguments; to be prepared. `scheduler` is not looked at, as in Accelerate."""
    from .schedule import MegatronSchedule

    return MegatronSchedule(optimizer, get_args())


def prepare_data_loader(accelerator, dataloader):
    """A loader of the rows of all micro-batches of a step, prepared; of a MegatronLMDummyDataLoader three."""
    from .dummies import MegatronLMDummyDataLoader
    from .loaders import with_step_rows

    if isinstance(dataloader, MegatronLMDummyDataLoader):
        made = dataloader.build_train_valid_test_data_iterators(accelerator)
        return tuple(None if loader is None else accelerator.prepare_data_loader(loader) for loader in made)
    plugin = accelerator.state.megatron_lm_plugin
    return accelerator.prepare_data_loader(with_step_rows(dataloader, plugin.micro_batch_size * plugin.num_micro_batches))


def model_provider_func(pre_process=True, post_process=True, add_encoder=True, add_decoder=True):
    """Would make a model of Megatron-LM."""
    raise NotImplementedError(f"model_provider_func(): the models of Megatron-LM are not in libaccel; {_ANOTHER}")


def finish_mpu_init():
    """The ranks have met when the Accelerator was made, and set_seed() seeds random numbers: there is nothing to do."""


megatron_lm_initialize = initialize
megatron_lm_prepare_data_loader = prepare_data_loader
megatron_lm_prepare_model_optimizer_scheduler = prepare_model_optimizer_scheduler
megatron_lm_prepare_optimizer = prepare_optimizer
megatron_lm_prepare_scheduler = prepare_scheduler
