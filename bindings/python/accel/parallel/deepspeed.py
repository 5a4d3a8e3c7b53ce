# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's settings for the engine, which shards as ZeRO's stages say."""

import contextlib
import copy
import functools
import json
import os
import warnings
from dataclasses import dataclass

from .. import capi
from ..generated import settings
from ..state.environment import str_to_bool
from ..state.job import is_initialized, sharded_by
from ..state.options import fill, read_variables
from .deepspeed_config import HfDeepSpeedConfig

# Fields, and where they are in the configuration.
_PATHS = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
    "offload_param_nvme_path": "zero_optimization.offload_param.nvme_path",
    "offload_optimizer_nvme_path": "zero_optimization.offload_optimizer.nvme_path",
    "zero3_save_16bit_model": "zero_optimization.stage3_gather_16bit_weights_on_model_save",
}
# Fields of a configuration file of the launcher that a file of DeepSpeed decides as well.
_DECIDED_BY_A_FILE = ("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device", "offload_param_device",
                      "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model", "mixed_precision")


@dataclass
class DeepSpeedPlugin(settings.DeepSpeedPlugin):
    """Sharding by ZeRO's stages, clipping and accumulation, as DeepSpeed's configuration says. None: from ACCELERATE_DEEPSPEED_*, else the
    default. `deepspeed_config` is the configuration with all that is known; what is "auto" there is filled when a model is prepared."""

    def __post_init__(self):
        read_variables(self, *self._variables)
        if self.enable_msamp is None:
            self.enable_msamp = os.environ.get("ACCELERATE_FP8_BACKEND") == "MSAMP"
        if self.enable_msamp:
            raise NotImplementedError("enable_msamp: nothing computes in 8-bit floating point yet")
        if self.hf_ds_config == "none":
            self.hf_ds_config = HfDeepSpeedConfig(self._own_config())
        else:
            self._read_config()
        self.deepspeed_config = self.hf_ds_config.config
        self.deepspeed_config["steps_per_print"] = float("inf")  # as in Accelerate: nothing is printed
        if self.zero3_init_flag is None:
            self.zero3_init_flag = str_to_bool(os.environ.get("ACCELERATE_DEEPSPEED_ZERO3_INIT", str(self.hf_ds_config.is_zero3()))) == 1
        if self.zero3_init_flag and not self.hf_ds_config.is_zero3():
            warnings.warn("DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False.", stacklevel=3)
            self.zero3_init_flag = False
        self._selected = False

    def _own_config(self):
        def offload(device, path):
            return {"device": device, "nvme_path": path if device == "nvme" else None}

        config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                  "gradient_accumulation_steps": self.gradient_accumulation_steps,
                  "zero_optimization": {
                      "stage": self.zero_stage,
                      "offload_optimizer": offload(self.offload_optimizer_device, self.offload_optimizer_nvme_path),
                      "offload_param": offload(self.offload_param_device, self.offload_param_nvme_path),
                      "stage3_gather_16bit_weights_on_model_save": self.zero3_save_16bit_model}}
        return {**config, "gradient_clipping": self.gradient_clipping} if self.gradient_clipping else config

    def _read_config(self):
        if not isinstance(self.hf_ds_config, HfDeepSpeedConfig):
            self.hf_ds_config = HfDeepSpeedConfig(self.hf_ds_config)
        config = self.hf_ds_config.config
        config.setdefault("gradient_accumulation_steps", 1)
        if "zero_optimization" not in config:
            raise ValueError("Please specify the ZeRO optimization config in the DeepSpeed config.")
        twice = [name for name in os.environ.get("ACCELERATE_CONFIG_DS_FIELDS", "").split(",") if name in _DECIDED_BY_A_FILE]
        if twice:
            raise ValueError(f"{', '.join(twice)}: expected in DeepSpeed's file alone, which decides them. If you are using an accelerate config file, "
                             "remove others config variables mentioned in the above specified list.")
        given = {path: getattr(self, name) for name, path in _PATHS.items() if getattr(self, name) is not None}
        for path in given:
            self.fill_match(path, **given, must_match=False)
        self.hf_ds_config.set_stage_and_offload()
        for name, path in _PATHS.items():
            if self.get_value(path) not in (None, "auto"):
                setattr(self, name, self.get_value(path))

    def fill_match(self, ds_key_long, mismatches=None, must_match=True, **kwargs):
        """Fills a value that is "auto"; another one that differs is added to `mismatches`."""
        config, key = self.hf_ds_config.find_config_node(ds_key_long)
        if config is None:
            return
        found = config.get(key)
        if isinstance(found, str) and found == "auto":
            if ds_key_long not in kwargs:
                raise ValueError(f"`{ds_key_long}` not found in kwargs. It is `auto` in the DeepSpeed config: set it there, or pass it")
            config[key] = kwargs[ds_key_long]
        elif must_match and mismatches is not None and found is not None and kwargs.get(ds_key_long, found) != found:
            mismatches.append(f"- ds {ds_key_long}={found} vs arg {ds_key_long}={kwargs[ds_key_long]}")

    def is_auto(self, ds_key_long):
        return self.get_value(ds_key_long) == "auto"

    def get_value(self, ds_key_long, default=None):
        return self.hf_ds_config.get_value(ds_key_long, default)

    def deepspeed_config_process(self, prefix="", mismatches=None, config=None, must_match=True, **kwargs):
        """Fills all "auto" values. All values that differ from the arguments are one error."""
        mismatches = [] if mismatches is None else mismatches
        for key, value in (self.deepspeed_config if config is None else config).items():
            if isinstance(value, dict):
                self.deepspeed_config_process(f"{prefix}{key}.", mismatches, value, must_match, **kwargs)
            else:
                self.fill_match(prefix + key, mismatches, must_match, **kwargs)
        if mismatches and not prefix:
            listed = "\n".join(mismatches)
            raise ValueError(f"Please correct the following DeepSpeed config values that mismatch kwargs values:\n{listed}\nThe easiest "
                             "method is to set these DeepSpeed config values to 'auto'.")

    def set_mixed_precision(self, mixed_precision):
        """The configuration follows the precision of the Accelerator, unless it has another one."""
        config, own = self.deepspeed_config, "bf16" if mixed_precision in ("bf16", "fp8") else mixed_precision
        other = {"fp16": "bf16", "bf16": "fp16"}.get(own)
        if other and str(config.get(other, {}).get("enabled", False)).lower() == "true":
            raise ValueError(f"`--mixed_precision` arg cannot be set to `{mixed_precision}` when `{other}` is set in the DeepSpeed config file.")
        if own == "fp16":
            config.setdefault("fp16", {"enabled": True, "auto_cast": True})
        elif own == "bf16":
            config.setdefault("bf16", {"enabled": True})
        for section in ("fp16", "bf16"):
            config.setdefault(section, {"enabled": False})
            self.fill_match(f"{section}.enabled", must_match=False, **{f"{section}.enabled": own == section})

    @property
    def mixed_precision(self):
        """The precision of the configuration."""
        return next((name for name in ("fp16", "bf16") if self.deepspeed_config.get(name, {}).get("enabled") is True), "no")

    def set_deepspeed_weakref(self):
        """Keeps a copy of the configuration without "auto" values as `dschf`. Transformers does not get it: it would import the package
        deepspeed."""
        config = copy.deepcopy(self.deepspeed_config)
        for key in ("gradient_accumulation_steps", "train_micro_batch_size_per_gpu"):
            if config.get(key, "auto") == "auto":
                config[key] = 1
        if config.get("train_batch_size") == "auto":
            del config["train_batch_size"]
        self.dschf = HfDeepSpeedConfig(config)

    def is_zero3_init_enabled(self):
        return self.zero3_init_flag

    @contextlib.contextmanager
    def zero3_init_context_manager(self, enable=False):
        """With another zero3_init_flag inside: whether ranks other than 0 may prepare models that are on the device meta."""
        kept, self.zero3_init_flag = self.zero3_init_flag, enable
        if kept != enable:
            self.set_deepspeed_weakref()
        try:
            yield
        finally:
            self.zero3_init_flag = kept
            if kept != enable:
                self.set_deepspeed_weakref()

    def set_moe_leaf_modules(self, model):
        """Checks that the model has modules of transformer_moe_cls_names, which are gathered as one."""
        if self.transformer_moe_cls_names is None:
            self.transformer_moe_cls_names = os.environ.get("ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES")
        known = {type(module).__name__ for module in model.modules()} if self.transformer_moe_cls_names else ()
        for name in filter(None, (self.transformer_moe_cls_names or "").split(",")):
            if name not in known:
                raise ValueError(f"Could not find a transformer layer class called '{name}' to wrap in the model.")

    def type_of_whole_weights(self):
        """"bfloat16" or "float16" for weights that are collected under ZeRO 3, which needs zero3_save_16bit_model; None: the model's own."""
        if self.get_value("zero_optimization.stage") != 3:
            return None
        if self.get_value("zero_optimization.stage3_gather_16bit_weights_on_model_save") is not True:
            raise ValueError("Cannot get 16bit model weights because `stage3_gather_16bit_weights_on_model_save` in DeepSpeed config is False. "
                             "Set it to True there, or give DeepSpeedPlugin(zero3_save_16bit_model=True); save_state() saves all without it")
        return {"bf16": "bfloat16", "fp16": "float16"}.get(self.mixed_precision)

    def select(self, _from_accelerator_state=False):
        """AcceleratorState().select_deepspeed_plugin(name) calls this."""
        if not _from_accelerator_state:
            raise ValueError("A `DeepSpeedPlugin` object must be enabled manually by calling "
                             "`AcceleratorState().select_deepspeed_plugin(plugin_key)`.")
        self.set_deepspeed_weakref()
        self._selected = True

    def _unselect(self):
        self._selected = False

    @property
    def selected(self):
        return self._selected

    @selected.setter
    def selected(self, _value):
        raise NotImplementedError("a plugin is selected by AcceleratorState().select_deepspeed_plugin(name)")

    def to_engine(self):
        """The engine's options: the whole configuration as JSON, but for what Python does itself."""
        config = copy.deepcopy({key: value for key, value in self.deepspeed_config.items() if key not in ("optimizer", "scheduler", "steps_per_print")})
        config["zero_optimization"].pop("stage3_gather_16bit_weights_on_model_save", None)
        return fill(capi.accel_deepspeed_options_t(), {"enabled": 1, "hf_ds_config": json.dumps(config), "zero3_init_flag": self.zero3_init_flag,
                                                       "transformer_moe_cls_names": self.transformer_moe_cls_names})


def deepspeed_required(func):
    """A decorator: the function is an error in a job whose Accelerator has no plugin of DeepSpeed."""
    @functools.wraps(func)
    def checked(*args, **kwargs):
        if is_initialized() and sharded_by()[1] is None:
            raise ValueError(f"{func.__name__}() needs DeepSpeed's settings: expected Accelerator(deepspeed_plugin=...) before it")
        return func(*args, **kwargs)

    return checked


def get_active_deepspeed_plugin(state):
    """The plugin that is selected."""
    plugins = state.deepspeed_plugins
    if plugins is None:
        raise ValueError("Couldn't retrieve the active `DeepSpeedPlugin` as none were enabled: give Accelerator(deepspeed_plugin=...)")
    return selected_of(plugins)


def selected_of(plugins):
    """The selected one of a plugin, or of several by their names."""
    return plugins if not isinstance(plugins, dict) else next(plugin for plugin in plugins.values() if plugin.selected)


class DummyOptim:
    """Stands for the optimizer that DeepSpeed's configuration names, for these parameters."""

    def __init__(self, params, lr=0.001, weight_decay=0, **kwargs):
        self.params, self.lr, self.weight_decay, self.kwargs = params, lr, weight_decay, kwargs


class DummyScheduler:
    """Stands for the scheduler that DeepSpeed's configuration names, or that `lr_scheduler_callable` makes for the optimizer."""

    def __init__(self, optimizer, total_num_steps=None, warmup_num_steps=0, lr_scheduler_callable=None, **kwargs):
        self.optimizer, self.total_num_steps, self.warmup_num_steps = optimizer, total_num_steps, warmup_num_steps
        self.lr_scheduler_callable, self.kwargs = lr_scheduler_callable, kwargs
