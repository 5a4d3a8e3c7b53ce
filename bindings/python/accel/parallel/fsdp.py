# SPDX-License-Identifier: Apache-2.0
"""Sharded training: its settings, and one file of the weights that several ranks wrote in parts."""

import functools
import logging
import os
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

from .. import capi
from ..compat.constants import FSDP_AUTO_WRAP_POLICY, FSDP_BACKWARD_PREFETCH, FSDP_SHARDING_STRATEGY
from ..engine.torch_types import is_torch_model
from ..generated import settings
from ..state.environment import str_to_bool
from ..state.options import engine_options, fill, read_variables
from ..state.process import PartialState
from . import sharding_types

_logger = logging.getLogger(__name__)


def enable_fsdp_ram_efficient_loading():
    """From now on transformers loads weights on rank 0 only, and sharding takes them from there."""
    os.environ.setdefault("ACCELERATE_USE_FSDP", "True")
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "True"


def disable_fsdp_ram_efficient_loading():
    """Each rank loads weights itself."""
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "False"


def _member(kind, name, value, known=()):
    """The member of an enum: itself, by its name in any case, or by its number."""
    if isinstance(value, kind):
        return value
    text = str(value).upper()
    number = known.index(text) + 1 if text in known else int(text) if text.isdigit() else kind.__members__.get(text)
    try:
        return kind(number)
    except ValueError:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(known or kind.__members__)}") from None


@dataclass
class FullyShardedDataParallelPlugin(settings.FullyShardedDataParallelPlugin):
    """How the ranks share out a model. None: from FSDP_*, else the default, which depends on the version. The kinds of values are those of
    torch.distributed.fsdp, or texts and numbers for them. Version 2: a number as reshard_after_forward is that of the ranks in a group, which keeps
    the parameters from forward to backward. param_init_fn(module) gives values to a module's own tensors on the device meta. The last fields are
    those that accel_fsdp_options_t has beyond Accelerate."""

    def __post_init__(self):
        read_variables(self, "fsdp_version")
        if self.fsdp_version not in (1, 2):
            raise ValueError(f"fsdp_version={self.fsdp_version!r}: expected 1 or 2")
        # What nobody has said: there the engine has defaults of its own.
        self._unsaid = {name for name in ("sharding_strategy", "reshard_after_forward", "backward_prefetch", "sync_module_states")
                        if getattr(self, name) is None and f"FSDP_{name.upper()}" not in os.environ}
        self._checkpointed: "weakref.WeakSet[Any]" = weakref.WeakSet()
        obsolete = []
        self._set_strategy(obsolete)
        read_variables(self, "cpu_offload")
        self.set_cpu_offload()
        self.validate_cpu_offload()
        self._set_prefetch(obsolete)
        self.set_state_dict_type()
        self._set_policy_from_name()
        self._set_flags(obsolete)
        if isinstance(self.mixed_precision_policy, str):
            self.set_mixed_precision(self.mixed_precision_policy, override=True)
        elif isinstance(self.mixed_precision_policy, dict):
            self.set_mixed_precision(self.mixed_precision_policy)
        if self.mixed_precision_policy is not None:
            self.validate_mixed_precision_policy()
        if obsolete:
            _logger.warning("Settings that fsdp_version 2 does not have: %s", " ".join(obsolete))

    def _set_strategy(self, obsolete):
        strategies = sharding_types.types().ShardingStrategy
        if self.sharding_strategy is not None and self.fsdp_version == 2:
            obsolete.append("sharding_strategy is deprecated in favor of reshard_after_forward.")
        if self.fsdp_version == 1:
            given = self.sharding_strategy if self.sharding_strategy is not None else os.environ.get("FSDP_SHARDING_STRATEGY", "FULL_SHARD")
            self.sharding_strategy = _member(strategies, "sharding_strategy", given, FSDP_SHARDING_STRATEGY)
            if isinstance(self.reshard_after_forward, bool):
                raise ValueError(f"reshard_after_forward={self.reshard_after_forward}: with fsdp_version=1 expected the name of a strategy")
            if self.reshard_after_forward is not None:
                self.reshard_after_forward = _member(strategies, "reshard_after_forward", self.reshard_after_forward, FSDP_SHARDING_STRATEGY)
            return
        given = self.reshard_after_forward
        if given is None:
            given = os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true")
        try:
            self.reshard_after_forward = str_to_bool(given, to_bool=True) if isinstance(given, str) else given
        except ValueError:
            self.reshard_after_forward = int(given) if given.isdigit() else None
        is_number = isinstance(self.reshard_after_forward, int) and not isinstance(self.reshard_after_forward, bool)
        if not isinstance(self.reshard_after_forward, bool) and not (is_number and self.reshard_after_forward > 0):
            raise ValueError(f"reshard_after_forward={given!r}: with fsdp_version=2 expected True, False, or a number of ranks")

    def _set_prefetch(self, obsolete):
        read_variables(self, backward_prefetch=None)
        if str(self.backward_prefetch).upper() in ("NO_PREFETCH", "3"):
            self.backward_prefetch = None
        if self.backward_prefetch is not None:
            self.backward_prefetch = _member(sharding_types.types().BackwardPrefetch, "backward_prefetch", self.backward_prefetch,
                                             FSDP_BACKWARD_PREFETCH)
        if self.fsdp_version == 2 and self.backward_prefetch is not None:
            obsolete.append("backward_prefetch is not supported in FSDP2. Setting backward prefetch to None.")
            self.backward_prefetch = None

    def _set_policy_from_name(self):
        read_variables(self, "auto_wrap_policy")
        if not isinstance(self.auto_wrap_policy, str):
            return
        name = self.auto_wrap_policy.upper()
        if name not in FSDP_AUTO_WRAP_POLICY:
            raise ValueError(f"auto_wrap_policy={self.auto_wrap_policy!r}: expected one of {', '.join(FSDP_AUTO_WRAP_POLICY)}")
        policies = sharding_types.policies()
        self.auto_wrap_policy = {"TRANSFORMER_BASED_WRAP": policies.transformer_auto_wrap_policy,
                                 "SIZE_BASED_WRAP": policies.size_based_auto_wrap_policy, "NO_WRAP": None}[name]
        if name == "TRANSFORMER_BASED_WRAP":
            read_variables(self, "transformer_cls_names_to_wrap")
            if isinstance(self.transformer_cls_names_to_wrap, str):
                self.transformer_cls_names_to_wrap = self.transformer_cls_names_to_wrap.split(",")
        elif name == "SIZE_BASED_WRAP":
            read_variables(self, "min_num_params")
            if isinstance(self.min_num_params, bool) or not isinstance(self.min_num_params, int):
                raise ValueError(f"min_num_params={self.min_num_params!r}: expected an int")

    def _set_flags(self, obsolete):
        if self.fsdp_version == 1:
            read_variables(self, "forward_prefetch", use_orig_params="False", sync_module_states="False")
        for name in ("use_orig_params", "sync_module_states") if self.fsdp_version == 2 else ():
            if getattr(self, name) is not None:
                obsolete.append(f"{name} is obsolete in FSDP2.")
                setattr(self, name, None)
        if self.fsdp_version == 2 and self.forward_prefetch is not None:
            raise ValueError("forward_prefetch is not there in FSDP2: expected None, or fsdp_version=1")
        read_variables(self, "activation_checkpointing", "activation_checkpointing_offload", "ignored_modules")
        if self.activation_checkpointing_offload and not self.activation_checkpointing:
            raise ValueError("`activation_checkpointing_offload=True` requires `activation_checkpointing=True`.")
        if self.activation_checkpointing_offload and self.fsdp_version != 2:
            raise ValueError("`activation_checkpointing_offload=True` requires `fsdp_version=2`.")
        if self.cpu_ram_efficient_loading is None:
            read_variables(self, "cpu_ram_efficient_loading")
        else:
            os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = str(self.cpu_ram_efficient_loading)  # transformers reads it
        if self.fsdp_version == 1 and self.cpu_ram_efficient_loading and not self.sync_module_states:
            if "sync_module_states" not in self._unsaid:
                warnings.warn("sync_module_states cannot be False with cpu_ram_efficient_loading: only rank 0 has weights. It is True now.",
                              stacklevel=4)
            self.sync_module_states = True

    def set_state_dict_type(self, state_dict_type=None):
        """Sets the form of the model in checkpoints: FULL_STATE_DICT, SHARDED_STATE_DICT, or LOCAL_STATE_DICT of version 1."""
        types = sharding_types.types()
        if state_dict_type is not None and state_dict_type != self.state_dict_type:
            self.state_dict_type, self.state_dict_config, self.optim_state_dict_config = state_dict_type, None, None
        read_variables(self, state_dict_type="FULL_STATE_DICT" if self.fsdp_version == 1 else "SHARDED_STATE_DICT")
        self.state_dict_type = _member(types.StateDictType, "state_dict_type", self.state_dict_type)
        if self.state_dict_type == types.StateDictType.FULL_STATE_DICT:
            self.state_dict_config = self.state_dict_config or types.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            self.optim_state_dict_config = self.optim_state_dict_config or types.FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
        elif self.state_dict_type == types.StateDictType.SHARDED_STATE_DICT:
            self.state_dict_config = self.state_dict_config or types.ShardedStateDictConfig(offload_to_cpu=True)
            self.optim_state_dict_config = self.optim_state_dict_config or types.ShardedOptimStateDictConfig(offload_to_cpu=True)
        elif self.fsdp_version == 2:
            raise ValueError("FSDP2 does not support LOCAL_STATE_DICT: expected SHARDED_STATE_DICT or FULL_STATE_DICT")

    def set_auto_wrap_policy(self, model):
        """Completes the policy for a model: with its classes of the given names, or of its `_no_split_modules`; or with min_num_params."""
        policies = sharding_types.policies()
        if self.auto_wrap_policy == policies.transformer_auto_wrap_policy:
            if self.transformer_cls_names_to_wrap is None:
                self.transformer_cls_names_to_wrap = list(getattr(model, "_no_split_modules", None) or [])
            classes = {type(module).__name__: type(module) for module in model.modules()}
            for name in self.transformer_cls_names_to_wrap:
                if name not in classes:
                    raise ValueError(f"Could not find the transformer layer class {name} in the model.")
            self.auto_wrap_policy = functools.partial(self.auto_wrap_policy,
                                                      transformer_layer_cls={classes[name] for name in self.transformer_cls_names_to_wrap})
        elif self.auto_wrap_policy == policies.size_based_auto_wrap_policy:
            self.auto_wrap_policy = functools.partial(self.auto_wrap_policy, min_num_params=self.min_num_params) if self.min_num_params else None

    def set_mixed_precision(self, mixed_precision, buffer_autocast=False, override=False):
        """Makes mixed_precision_policy, unless there is one: "fp16", "bf16", "fp8" or "fp32", or an element type. A dict becomes a policy."""
        known = sharding_types.dtypes()
        if isinstance(mixed_precision, str) and mixed_precision not in known.values() and mixed_precision not in known:
            raise ValueError(f"Invalid mixed precision: {mixed_precision}. Must be one of {list(known)}")
        dtype = known.get(mixed_precision, mixed_precision) if isinstance(mixed_precision, str) else mixed_precision
        if not isinstance(dtype, (str, dict)) and dtype not in known.values():
            raise ValueError(f"Invalid mixed precision: {mixed_precision}. Must be one of {list(known.values())}")
        third = "buffer_dtype" if self.fsdp_version == 1 else "output_dtype"
        if override or self.mixed_precision_policy is None:
            policy = {"param_dtype": dtype, "reduce_dtype": dtype, third: known["fp32"] if buffer_autocast and third == "buffer_dtype" else dtype}
        elif isinstance(self.mixed_precision_policy, dict):
            policy = self.mixed_precision_policy
            keys = ["param_dtype", "reduce_dtype", third]
            if any(key not in policy for key in keys) or any(value not in known.values() for value in policy.values()):
                raise ValueError(f"Invalid mixed precision policy: {policy}. Must be a `dict` with keys {keys}. Values must be one of "
                                 f"{list(known.values())}")
        else:
            return
        self.mixed_precision_policy = self._policy_class()(**policy)

    def _policy_class(self):
        types = sharding_types.types()
        return types.MixedPrecision if self.fsdp_version == 1 else types.MixedPrecisionPolicy

    def validate_mixed_precision_policy(self):
        """Refuses a policy of the other version."""
        if not isinstance(self.mixed_precision_policy, self._policy_class()):
            raise ValueError(f"mixed_precision_policy must be an instance of `torch.distributed.fsdp.{self._policy_class().__name__}`.")

    def set_cpu_offload(self):
        """True and False become the class of the version."""
        types = sharding_types.types()
        if isinstance(self.cpu_offload, bool):
            self.cpu_offload = (types.CPUOffload(offload_params=self.cpu_offload) if self.fsdp_version == 1 else
                                types.CPUOffloadPolicy() if self.cpu_offload else types.OffloadPolicy())

    def validate_cpu_offload(self):
        """Refuses a class of the other version."""
        types = sharding_types.types()
        expected = types.CPUOffload if self.fsdp_version == 1 else types.OffloadPolicy
        if not isinstance(self.cpu_offload, expected):
            raise ValueError(f"`cpu_offload` must be an instance of `torch.distributed.fsdp.{expected.__name__}` in FSDP{self.fsdp_version}, "
                             f"got {self.cpu_offload}")

    def checkpoint_activations_of(self, model):
        """Sets activation_checkpointing for this model alone."""
        self._checkpointed.add(model)

    def checkpoints_activations_of(self, model):
        """Whether the forwards of its groups are computed again in backward."""
        return bool(self.activation_checkpointing) or model is not None and model in self._checkpointed

    def to_engine(self, model=None):
        """The engine's options, for a model. Fields that nobody has set stay unset, where the engine has defaults of its own."""
        policy, names, number = self._wrapping(model)
        checkpoints = self.checkpoints_activations_of(model) and not is_torch_model(model)  # there training/torch_model.py does it
        reshard, strategy = self.reshard_after_forward, self.sharding_strategy
        if self.fsdp_version == 1 and "sharding_strategy" in self._unsaid and reshard is not None:
            strategy = reshard
        given = dict(
            enabled=1, state_dict_type=self.state_dict_type.value, auto_wrap_policy=policy, transformer_cls_names_to_wrap=names, min_num_params=number,
            ignored_modules=self._ignored(model), cpu_offload=self._offloads(), use_orig_params=None, activation_checkpointing=checkpoints,
            activation_checkpointing_offload=checkpoints and self.activation_checkpointing_offload,
            offload_folder=None if self.offload_folder is None else str(self.offload_folder),
            sharding_strategy=None if self.fsdp_version == 2 else strategy.value, backward_prefetch=getattr(self.backward_prefetch, "value", None),
            reshard_after_forward=bool(reshard) if self.fsdp_version == 2 else None,
            reshard_group_size=None if self.fsdp_version == 1 or isinstance(reshard, bool) else reshard, **self._dtypes())
        if self.fsdp_version == 1 and self.backward_prefetch is None:
            given["backward_prefetch"] = capi.ACCEL_BACKWARD_PREFETCH_NO_PREFETCH
        unsaid = {"backward_prefetch", "sync_module_states"}
        if reshard is True if self.fsdp_version == 2 else reshard is None and strategy.name == "FULL_SHARD":
            unsaid |= {"sharding_strategy", "reshard_after_forward"}  # the default of models in stages is another one
        return engine_options(self, **{**given, **dict.fromkeys(unsaid & self._unsaid)})

    def _wrapping(self, model):
        """The policy's number, names of classes and number of parameters."""
        policies, policy = sharding_types.policies(), self.auto_wrap_policy
        function, bound = getattr(policy, "func", policy), getattr(policy, "keywords", {})
        if policy is None:
            return capi.ACCEL_AUTO_WRAP_POLICY_NO_WRAP, None, None
        if function == policies.size_based_auto_wrap_policy:
            number = bound.get("min_num_params", self.min_num_params)
            return capi.ACCEL_AUTO_WRAP_POLICY_SIZE_BASED_WRAP, None, number
        if function == policies.transformer_auto_wrap_policy:
            names = self.transformer_cls_names_to_wrap
            if names is None:
                names = [kind.__name__ for kind in bound.get("transformer_layer_cls", ())] or list(getattr(model, "_no_split_modules", None) or [])
            return capi.ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP, ",".join(names) or None, None
        if hasattr(policy, "_module_classes"):  # torch's ModuleWrapPolicy
            return capi.ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP, ",".join(kind.__name__ for kind in policy._module_classes), None
        raise NotImplementedError("auto_wrap_policy is a function of the program: expected a name, or a policy by classes or by size")

    def _ignored(self, model):
        """A regular expression for the names of the modules."""
        if self.ignored_modules is None or isinstance(self.ignored_modules, str):
            return self.ignored_modules
        ignored = list(self.ignored_modules)
        names = [name for name, module in model.named_modules() if any(module is one for one in ignored)]
        if len(names) < len(ignored):
            raise ValueError(f"ignored_modules has {len(ignored)} modules, of which {len(names)} are in the model")
        return "|".join(name.replace(".", r"\.") for name in names) or None

    def _dtypes(self):
        policy = self.mixed_precision_policy
        if policy is None:
            return {}
        return {**{name: sharding_types.dtype_name(getattr(policy, name, None)) for name in ("param_dtype", "reduce_dtype", "output_dtype")},
                "cast_forward_inputs": True if self.fsdp_version == 1 else policy.cast_forward_inputs}

    def _offloads(self):
        return getattr(self.cpu_offload, "offload_params", isinstance(self.cpu_offload, sharding_types.types().CPUOffloadPolicy))


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
