"""Weights and states of optimizers in the files of FSDP. accelerator.save_state() has files of its own, which are verified and need less memory."""

from .. import capi
from ..engine.torch_types import with_torch
from ..state.options import fill


@with_torch("..checkpoint.fsdp_checkpoint")
def save_fsdp_model(fsdp_plugin, accelerator, model, output_dir, model_index=0, adapter_only=False, use_dcp=True):
    """Writes the weights of a prepared model as state_dict_type of the plugin says: FULL_STATE_DICT one file, LOCAL_STATE_DICT one of each
    rank, SHARDED_STATE_DICT a folder of torch.distributed.checkpoint, or with use_dcp=False one file of each rank. All ranks call."""
    return _call(capi.accel_save_fsdp_model, accelerator, model, output_dir, fsdp_plugin, model_index, use_dcp)


@with_torch("..checkpoint.fsdp_checkpoint")
def load_fsdp_model(fsdp_plugin, accelerator, model, input_dir, model_index=0, adapter_only=False, use_dcp=True):
    """Loads what save_fsdp_model() or the reference wrote; files of ranks into as many ranks. For models of torch, what load_state_dict() of
    torch returns."""
    return _call(capi.accel_load_fsdp_model, accelerator, model, input_dir, fsdp_plugin, model_index, use_dcp)


@with_torch("..checkpoint.fsdp_checkpoint")
def save_fsdp_optimizer(fsdp_plugin, accelerator, optimizer, model, output_dir, optimizer_index=0, use_dcp=True):
    """Writes the state of an optimizer of a prepared model, by the names of its parameters. All ranks call."""
    return _call(capi.accel_save_fsdp_optimizer, accelerator, optimizer, output_dir, fsdp_plugin, optimizer_index, use_dcp)


@with_torch("..checkpoint.fsdp_checkpoint")
def load_fsdp_optimizer(fsdp_plugin, accelerator, optimizer, model, input_dir, optimizer_index=0, adapter_only=False, use_dcp=True):
    """Loads what save_fsdp_optimizer() or the reference wrote; files of ranks into as many ranks."""
    return _call(capi.accel_load_fsdp_optimizer, accelerator, optimizer, input_dir, fsdp_plugin, optimizer_index, use_dcp)


def _call(function, accelerator, prepared, folder, plugin, index, use_dcp):
    kind = getattr(capi, f"ACCEL_STATE_DICT_TYPE_{plugin.state_dict_type.name}")
    options = fill(capi.accel_fsdp_file_options_t(), {"state_dict_type": kind, "index": index, "use_dcp": use_dcp})
    function(accelerator._current(), prepared.handle, str(folder), options)
