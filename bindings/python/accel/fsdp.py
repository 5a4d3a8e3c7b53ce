"""Of fully sharded training what one process needs: its settings, which then have nothing to share out, and one file of the weights that
several ranks wrote in parts."""

import os
from dataclasses import dataclass
from typing import Any, Optional

from . import capi
from .handlers import KwargsHandler, fill
from .state import PartialState
from .utils.constants import FSDP_AUTO_WRAP_POLICY


@dataclass
class FullyShardedDataParallelPlugin(KwargsHandler):
    """How the ranks share out a model. An Accelerator takes it with one process, which has the whole model; several are refused."""

    fsdp_version: Optional[int] = None
    sharding_strategy: Any = None
    reshard_after_forward: Any = None
    backward_prefetch: Any = None
    mixed_precision_policy: Any = None
    auto_wrap_policy: Any = None
    cpu_offload: Any = False
    ignored_modules: Any = None
    state_dict_type: Any = None
    state_dict_config: Any = None
    optim_state_dict_config: Any = None
    limit_all_gathers: bool = True
    use_orig_params: Optional[bool] = None
    param_init_fn: Any = None
    sync_module_states: Optional[bool] = None
    forward_prefetch: Optional[bool] = None
    activation_checkpointing: Optional[bool] = None
    cpu_ram_efficient_loading: Optional[bool] = None
    transformer_cls_names_to_wrap: Optional[list] = None
    min_num_params: Optional[int] = None

    def set_auto_wrap_policy(self, model):
        """Takes the policy's name from FSDP_AUTO_WRAP_POLICY unless one is given. It says which layers are shared out together."""
        if self.auto_wrap_policy is None:
            self.auto_wrap_policy = os.environ.get("FSDP_AUTO_WRAP_POLICY", "NO_WRAP")
        if isinstance(self.auto_wrap_policy, str) and self.auto_wrap_policy.upper() not in FSDP_AUTO_WRAP_POLICY:
            raise ValueError(f"auto_wrap_policy={self.auto_wrap_policy!r}: expected one of {', '.join(FSDP_AUTO_WRAP_POLICY)}")


def merge_fsdp_weights(checkpoint_dir, output_path, safe_serialization=True, remove_checkpoint_dir=False):
    """Writes the weights of a model whose parts several ranks wrote as one file, `model.safetensors` or `pytorch_model.bin`, on the main
    process; the others wait. `checkpoint_dir` is a checkpoint of accel with parts, or the folder that torch.distributed.checkpoint wrote."""
    is_made = PartialState.is_made()
    try:
        if not is_made or PartialState().is_main_process:
            options = fill(capi.accel_merge_weights_options_t(), {"safe_serialization": safe_serialization, "remove_checkpoint_dir": remove_checkpoint_dir})
            capi.accel_merge_weights(str(checkpoint_dir), str(output_path), options)
    finally:
        if is_made:
            PartialState().wait_for_everyone()
