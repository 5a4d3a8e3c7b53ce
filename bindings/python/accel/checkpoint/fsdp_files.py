# SPDX-License-Identifier: Apache-2.0
"""Weights and states of optimizers in the files of FSDP, of models of torch and of accel. accelerator.save_state() has files of its own,
which are verified."""

import os

from .. import capi
from ..compat.constants import FSDP_MODEL_NAME
from ..engine.torch_types import is_torch_model, torch_module
from ..modules.argument_types import check_model
from ..state.options import fill
from ..training.accelerator_arguments import handle_of, pytorch_model


def save_fsdp_model(fsdp_plugin, accelerator, model, output_dir, model_index=0, adapter_only=False, use_dcp=True):
    """Writes the weights of a prepared model as state_dict_type of the plugin says: FULL_STATE_DICT one file, LOCAL_STATE_DICT one of each
    rank, SHARDED_STATE_DICT a folder of torch.distributed.checkpoint, or with use_dcp=False one file of each rank. All ranks call."""
    handle = handle_of(_prepared(accelerator, model), "save_fsdp_model")
    return _call(capi.accel_save_fsdp_model, accelerator, handle, output_dir, fsdp_plugin, model_index, use_dcp)


def load_fsdp_model(fsdp_plugin, accelerator, model, input_dir, model_index=0, adapter_only=False, use_dcp=True):
    """Loads what save_fsdp_model() or Accelerate wrote; files of ranks into as many ranks. For models of torch, what load_state_dict() of
    torch returns."""
    is_of_torch, prepared = is_torch_model(check_model("load_fsdp_model", model)), _prepared(accelerator, model)
    is_file_for_all = fsdp_plugin.fsdp_version == 1 and fsdp_plugin.state_dict_type.name == "FULL_STATE_DICT"
    if is_of_torch and is_file_for_all and pytorch_model().forward_of(prepared) is None:
        return _load_before_prepare(fsdp_plugin, accelerator, model, input_dir, model_index)
    _call(capi.accel_load_fsdp_model, accelerator, handle_of(prepared, "load_fsdp_model"), input_dir, fsdp_plugin, model_index, use_dcp)
    return torch_module().nn.modules.module._IncompatibleKeys([], []) if is_of_torch else None


def save_fsdp_optimizer(fsdp_plugin, accelerator, optimizer, model, output_dir, optimizer_index=0, use_dcp=True):
    """Writes the state of an optimizer of a prepared model, by the names of its parameters. All ranks call."""
    check_model("save_fsdp_optimizer", model)
    return _call(capi.accel_save_fsdp_optimizer, accelerator, optimizer.handle, output_dir, fsdp_plugin, optimizer_index, use_dcp)


def load_fsdp_optimizer(fsdp_plugin, accelerator, optimizer, model, input_dir, optimizer_index=0, adapter_only=False, use_dcp=True):
    """Loads what save_fsdp_optimizer() or Accelerate wrote; files of ranks into as many ranks."""
    check_model("load_fsdp_optimizer", model)
    return _call(capi.accel_load_fsdp_optimizer, accelerator, optimizer.handle, input_dir, fsdp_plugin, optimizer_index, use_dcp)


def _prepared(accelerator, model):
    """The prepared model of the one inside; any other as it is."""
    return next((one for one in accelerator._models if getattr(one, "module", None) is model), model)


def _load_before_prepare(plugin, accelerator, model, folder, index):
    """The main process loads the weights, and the others get them from it."""
    accelerator.wait_for_everyone()
    if accelerator.process_index == 0:
        name = f"{FSDP_MODEL_NAME}_{index}.bin" if index else f"{FSDP_MODEL_NAME}.bin"
        return model.load_state_dict(torch_module().load(os.path.join(folder, name), weights_only=True))
    if not plugin.sync_module_states:
        raise ValueError("sync_module_states is False, and the weights are loaded on the main process only before prepare(): "
                         "Set the `sync_module_states` flag to `True`, or load them afterwards")
    return None


def _call(function, accelerator, handle, folder, plugin, index, use_dcp):
    kind = getattr(capi, f"ACCEL_STATE_DICT_TYPE_{plugin.state_dict_type.name}")
    options = fill(capi.accel_fsdp_file_options_t(), {"state_dict_type": kind, "index": index, "use_dcp": use_dcp})
    function(accelerator._current(), handle, str(folder), options)
