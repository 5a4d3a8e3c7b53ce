# SPDX-License-Identifier: Apache-2.0
"""The precision of an Accelerator: autocast, the scale of losses, the recipe of fp8."""

from .. import capi
from ..generated import errors
from ..generated.enums import FP8BackendType
from ..generated.settings import AutocastKwargs, GradScalerKwargs
from ..state.environment import parse_choice_from_env
from ..state.process import of_state
from .fp8_layers import LayerFilter
from .fp8_recipes import RECIPES, AORecipeKwargs, FP8RecipeKwargs, MSAMPRecipeKwargs, TERecipeKwargs
from .grad_scaler import GradScaler


def handler_property(kind):
    """A property: what kwargs_handlers has of this kind, or None."""
    return property(lambda self: self._handlers.get(kind))


RECIPE_HANDLERS = (AORecipeKwargs, FP8RecipeKwargs, MSAMPRecipeKwargs, TERecipeKwargs)


class AcceleratorPrecision:
    """The members of an Accelerator that are about precision."""

    autocast_handler, scaler_handler = map(handler_property, (AutocastKwargs, GradScalerKwargs))
    ao_recipe_handler, fp8_recipe_handler, msamp_recipe_handler, te_recipe_handler = map(handler_property, RECIPE_HANDLERS)

    @property
    def fp8_enabled(self) -> bool:
        """Whether linear layers of prepared models compute in 8 bits."""
        return self.mixed_precision == "fp8"

    @property
    def has_fp8_handler(self) -> bool:
        """Whether kwargs_handlers has a recipe of fp8, or one was chosen."""
        return self._fp8_recipe is not None

    @property
    def fp8_backend(self) -> FP8BackendType:
        """Whose recipe it is; without one what ACCELERATE_FP8_BACKEND says."""
        if self.fp8_recipe_handler is not None:
            return FP8BackendType(self.fp8_recipe_handler.backend)
        for backend, kind in RECIPES.items():
            if kind in self._handlers:
                return backend
        if self.deepspeed_plugin is not None and self.deepspeed_plugin.enable_msamp:
            return FP8BackendType.MSAMP
        return FP8BackendType(parse_choice_from_env("ACCELERATE_FP8_BACKEND", "NO").upper())

    @property
    def delayed_fp8_autocast(self) -> bool:
        """Whether Accelerate puts fp8 around a model when the ranks share it already."""
        return self.has_fp8_handler and self.fp8_backend == FP8BackendType.TE and self.distributed_type in ("MULTI_GPU", "FSDP")

    @property
    def _fp8_recipe(self):
        return next((self._handlers[kind] for kind in RECIPE_HANDLERS if kind in self._handlers), None)

    @property
    def native_amp(self) -> bool:
        """Whether operators choose a precision of 16 bits, or of 8."""
        return self.mixed_precision in ("fp16", "bf16", "fp8")

    @property
    def scaler(self) -> "GradScaler | None":
        """How losses are scaled, with the names of torch.amp.GradScaler; None when they are not."""
        return GradScaler(self) if capi.accel_grad_scaler_state(self._current()) else None

    loss_scale: float = of_state(capi.accel_loss_scale)

    def _set_precision(self, asked):
        """Gives the engine the settings of the handlers. `asked`: the precision that the program asked for."""
        if GradScalerKwargs in self._handlers:
            capi.accel_set_grad_scaler(self._current(), self._handlers[GradScalerKwargs].to_engine())
        self._init_scale = capi.accel_loss_scale(self._current())
        if AutocastKwargs in self._handlers:
            capi.accel_set_autocast(self._current(), self._handlers[AutocastKwargs].to_engine())
        self._set_fp8(asked)

    def _set_fp8(self, asked):
        """Gives the engine the recipe; without one it has that of the environment."""
        given = self._fp8_recipe
        if not self.fp8_enabled:
            is_fp8 = str(asked or parse_choice_from_env("ACCELERATE_MIXED_PRECISION")).lower() == "fp8"  # which the GPU lacks
            if given is not None and not is_fp8 and self.distributed_type not in ("FSDP", "DEEPSPEED"):
                raise ValueError("Passing in an FP8 configuration requires setting `mixed_precision='fp8'`.")
            return
        if given is None:
            kind = RECIPES.get(self.fp8_backend, AORecipeKwargs)
            self._handlers[kind] = kind()
        try:
            capi.accel_set_fp8(self._current(), self._fp8_recipe.to_engine())
            capi.accel_set_fp8_filter(self._current(), LayerFilter(getattr(given, "module_filter_func", None)))
        except errors.StateError:  # models are prepared by the recipe of an earlier Accelerator
            if given is not None:
                raise
