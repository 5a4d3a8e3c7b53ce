# SPDX-License-Identifier: Apache-2.0
"""Settings of data parallelism: how gradients are averaged."""

from dataclasses import dataclass

from .. import capi
from ..generated import settings
from ..generated.enums import DDPCommunicationHookType
from ..state.options import engine_options, fill


@dataclass
class DistributedDataParallelKwargs(settings.DistributedDataParallelKwargs):
    """How gradients are averaged. None: the engine's default, which is torch's but for gradient_as_bucket_view (on)."""

    def to_engine(self):
        if not self.bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb={self.bucket_cap_mb}: expected a number above 0")
        hooks = {name: DDPCommunicationHookType(getattr(self, name)).value for name in ("comm_hook", "comm_wrapper")}
        given = self.comm_state_option
        power = fill(capi.accel_power_sgd_options_t(), given if isinstance(given, dict) else given.to_dict())
        options = engine_options(self, bucket_cap_mb=float(self.bucket_cap_mb), comm_state_option=power, **hooks)
        return options, power  # the second lives as long as the first is used

    def to_dict(self, ignore_keys=("comm_hook", "comm_wrapper", "comm_state_option")):
        """The settings of DistributedDataParallel; those that are not arguments of it are left out."""
        return {name: value for name, value in super().to_dict().items() if name not in ignore_keys}

    def register_comm_hook(self, model):
        raise NotImplementedError("DistributedDataParallelKwargs.register_comm_hook(): prepare() registers comm_hook and comm_wrapper when the "
                                  "Accelerator has these settings among its kwargs_handlers; a function of the program is a hook by "
                                  "register_comm_hook() of the prepared module")
