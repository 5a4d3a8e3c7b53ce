# SPDX-License-Identifier: Apache-2.0
"""The recipes of fp8 of Accelerate, by the libraries that it calls: torchao, Transformer Engine, MS-AMP. Each becomes the engine's one recipe."""

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

from .. import capi
from ..generated import settings
from ..generated.enums import FP8BackendType
from ..state.environment import parse_flag_from_env
from ..state.options import engine_options, fill, read_variables
from .fp8_layers import filter_first_and_last_linear_layers

Backend = Literal["MSAMP", "TE"]
OptLevel = Literal["O1", "O2"]
FP8Format = Literal["HYBRID", "E4M3", "E5M2"]
AmaxComputeAlgorithm = Literal["max", "most_recent"]

_PRODUCTS = {"override_forward": "ACCELERATE_FP8_OVERRIDE_FPROP", "override_input_gradient": "ACCELERATE_FP8_OVERRIDE_DGRAD",
             "override_weight_gradient": "ACCELERATE_FP8_OVERRIDE_WGRAD"}
# Of torchao's configuration, what has no meaning here when it is set.
_WITHOUT_COUNTERPART = ("emulate", "round_scales_to_power_of_2", "force_recompute_fp8_weight_in_bwd")


def _check(name, value, choices):
    if value not in get_args(choices):
        raise ValueError(f"`{name}` must be one of {' or '.join(get_args(choices))}; it is {value!r}")


@dataclass
class AORecipeKwargs(settings.AORecipeKwargs):
    """The recipe of fp8 as torchao has it: each operand has a scale of its own numbers. `config` is a torchao.float8.Float8LinearConfig, or None;
    module_filter_func(module, name) says whether a linear layer computes in 8 bits, instead of the first and the last one being left out.
    Beyond Accelerate all settings of the engine's recipe, accel_fp8_options_t."""

    def __post_init__(self):
        if self.module_filter_func is not None and not callable(self.module_filter_func):
            raise TypeError(f"module_filter_func is a {type(self.module_filter_func).__name__}; expected a function of a module and its name")
        if self.config is not None:
            return
        is_delayed = str(self.scaling).lower() in ("delayed", str(capi.ACCEL_FP8_SCALING_DELAYED))  # under which nothing is gathered in 8 bits
        read_variables(self, pad_inner_dim="true", enable_fsdp_float8_all_gather=str(not is_delayed))
        self.config = settings.Float8LinearConfig(self.enable_fsdp_float8_all_gather, self.pad_inner_dim)

    def to_engine(self):
        _name_what_is_left_out("AORecipeKwargs.config", [name for name in _WITHOUT_COUNTERPART if getattr(self.config, name, False)])
        chosen = {**{name: value for name, value in _settings_of(self.config).items() if getattr(self, name, None) is None},
                  "backend": capi.ACCEL_FP8_BACKEND_AO}
        if self.module_filter_func not in (None, filter_first_and_last_linear_layers) and self.skip_first_and_last is None:
            chosen["skip_first_and_last"] = False
        return engine_options(self, **chosen)


def _settings_of(config):
    """A configuration of torchao as settings of the engine."""
    said = {"pad_inner_dim": bool(config.pad_inner_dim), "fsdp_all_gather": bool(config.enable_fsdp_float8_all_gather)}
    granularity = getattr(getattr(config, "cast_config_weight", None), "scaling_granularity", None)
    if getattr(granularity, "value", granularity) == "axiswise":
        said["scaling"] = "rowwise"
    kind = getattr(getattr(config, "cast_config_input_for_grad_weight", None), "scaling_type", None)
    if getattr(kind, "value", kind) == "disabled":
        said["override_weight_gradient"] = True
    return said


@dataclass
class TERecipeKwargs(settings.TERecipeKwargs):
    """The recipe of fp8 as Transformer Engine has it: scales follow the largest magnitudes of former steps. None: from ACCELERATE_FP8_*, else
    its default. override_linear_precision: whether the forward, the inputs' gradients and the weights' are computed in bfloat16."""

    def __post_init__(self):
        read_variables(self, "use_autocast_during_eval", "margin", "interval", "fp8_format", "amax_history_len", "amax_compute_algo",
                       "use_mxfp8_block_scaling")
        self.fp8_format, self.amax_compute_algo = self.fp8_format.upper(), self.amax_compute_algo.lower()
        _check("fp8_format", self.fp8_format, FP8Format)
        _check("amax_compute_algo", self.amax_compute_algo, AmaxComputeAlgorithm)
        if self.override_linear_precision is None:
            self.override_linear_precision = tuple(map(parse_flag_from_env, _PRODUCTS.values()))
        if len(self.override_linear_precision) != len(_PRODUCTS):
            raise ValueError(f"override_linear_precision={self.override_linear_precision!r}: expected three of True and False, for the forward, the "
                             "inputs' gradients and the weights'")

    def to_engine(self):
        if self.use_mxfp8_block_scaling:
            for name in ("amax_compute_algo", "amax_history_len"):
                if name in self.to_kwargs():
                    raise ValueError(f"`{name}` is not supported for MXFP8 block scaling.")
        return fill(capi.accel_fp8_options_t(), {
            "backend": capi.ACCEL_FP8_BACKEND_TE, "format": self.fp8_format, "amax_algorithm": self.amax_compute_algo,
            "amax_history_length": self.amax_history_len, "margin": self.margin, "interval": self.interval,
            "use_in_evaluation": bool(self.use_autocast_during_eval), "use_mxfp8_block_scaling": bool(self.use_mxfp8_block_scaling),
            "fsdp_all_gather": False, "pad_inner_dim": False,  # whatever the variables say to torchao's recipe
            **dict(zip(_PRODUCTS, map(bool, self.override_linear_precision)))})


@dataclass
class MSAMPRecipeKwargs(settings.MSAMPRecipeKwargs):
    """The recipe of fp8 as MS-AMP has it: each operand has a scale of its own numbers. Its `opt_level`, "O1" or "O2", is about gradients and states
    of optimizers in 8 bits, which keep their precision here."""

    def __post_init__(self):
        read_variables(self, "opt_level")
        _check("opt_level", self.opt_level, OptLevel)

    def to_engine(self):
        _name_what_is_left_out("MSAMPRecipeKwargs", ["opt_level"])
        return fill(capi.accel_fp8_options_t(), {"backend": capi.ACCEL_FP8_BACKEND_MSAMP, "fsdp_all_gather": False, "pad_inner_dim": False})


@dataclass
class FP8RecipeKwargs(TERecipeKwargs, MSAMPRecipeKwargs):
    """Deprecated: TERecipeKwargs or MSAMPRecipeKwargs, as `backend` says. None: from ACCELERATE_FP8_BACKEND, else "TE"."""

    backend: Backend = None

    _variables = {**settings.MSAMPRecipeKwargs._variables, **settings.TERecipeKwargs._variables, "backend": ("ACCELERATE_FP8_BACKEND", "text", "TE")}

    def __post_init__(self):
        warnings.warn("FP8RecipeKwargs is deprecated and will be removed in Accelerate v2.0.0. Please use one of the proper FP8 recipe kwargs classes "
                      "such as TERecipeKwargs or MSAMPRecipeKwargs instead.", FutureWarning, stacklevel=3)
        read_variables(self, "backend")
        self.backend = self.backend.upper()
        if self.backend not in get_args(Backend):
            raise ValueError("`backend` must be 'MSAMP' or 'TE' (TransformerEngine) to use `FP8RecipeKwargs`.")
        TERecipeKwargs.__post_init__(self)
        MSAMPRecipeKwargs.__post_init__(self)

    def to_engine(self):
        return (TERecipeKwargs if self.backend == "TE" else MSAMPRecipeKwargs).to_engine(self)


RECIPES = {FP8BackendType.AO: AORecipeKwargs, FP8BackendType.TE: TERecipeKwargs, FP8BackendType.MSAMP: MSAMPRecipeKwargs}


def _name_what_is_left_out(where, names):
    if names:
        warnings.warn(f"{where}: {', '.join(names)} has no counterpart in libaccel, and no effect", UserWarning, stacklevel=2)
