# SPDX-License-Identifier: Apache-2.0
"""Gradients that the program computes by itself, without the engine's autograd: those of a model in torch or JAX, say."""

from .. import capi
from ..engine.values import to_engine
from ..engine.work import Work
from ..parallel.fsdp import FullyShardedDataParallelPlugin
from ..state.handlers import check_types
from ..state.job import current, sharded_by
from ..state.options import fill


def parameters_options(bucket_cap_mb, fsdp_plugin, module):
    """The options of parameters whose gradients the program computes, and what they only point to."""
    check_types(fsdp_plugin=(fsdp_plugin, FullyShardedDataParallelPlugin))
    options = fill(capi.accel_parameters_options_t(), {"bucket_cap_mb": None if bucket_cap_mb is None else float(bucket_cap_mb)})
    plugin = fsdp_plugin or sharded_by()[0]
    sharding = None if plugin is None else plugin.to_engine(module)
    if sharding is not None:
        options.fsdp = sharding
    return options, sharding


class OwnGradients:
    """Averages the gradients of a module's trainable parameters, counted in the order of `module.named_parameters()`, over the ranks.
    The module only holds the parameters; optimizers, clipping and checkpoints take it as any other.

        with accelerator.accumulate():
            for index in reversed(range(len(gradients))):
                gradients.ready(index, computed(index))     # its exchange starts
            gradients.synchronize()
            optimizer.step()

    Under `fsdp_plugin`, which is that of the Accelerator unless one is given, parameters show the rows of this rank, and so do optimizers;
    gradients are passed whole. Around its own use of a module the program calls unshard() and reshard().
    """

    def __init__(self, module, bucket_cap_mb=None, fsdp_plugin=None):
        options, _pointed_to = parameters_options(bucket_cap_mb, fsdp_plugin, module)
        self.module, self.handle = module, capi.accel_parameters_create(current(), module.handle, options)

    def __len__(self):
        return sum(parameter.requires_grad for parameter in self.module.parameters())

    def __getitem__(self, index):
        """The memory of a gradient: what is written there is not copied."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"gradient {index} of {len(self)}")
        return capi.accel_parameters_gradient(self.handle, index % len(self))

    def ready(self, index, gradient=None):
        """A gradient of this micro-batch is complete; without `gradient` it was written into the memory of `self[index]`."""
        capi.accel_parameters_grad_ready(self.handle, index, None if gradient is None else to_engine(gradient))

    def synchronize(self, async_op=False):
        """The end of a micro-batch. In the last one of a group all gradients are the mean over the ranks afterwards."""
        if async_op:
            return Work(capi.accel_parameters_synchronize_async(self.handle), lambda _: None)
        return capi.accel_parameters_synchronize(self.handle)

    def unshard(self, module="", wait=True):
        """Gathers the parameters of one module, a group of its own by its path or itself; "": what belongs to no group. They are whole until
        reshard() or the end of the micro-batch. wait=False: they are on their way meanwhile; call again with wait=True before they are used."""
        capi.accel_parameters_unshard(self.handle, self._path(module), int(wait))

    def reshard(self, module=""):
        """The parameters of this module show the rows of this rank again."""
        capi.accel_parameters_reshard(self.handle, self._path(module))

    def _path(self, module):
        if isinstance(module, str):
            return module
        for path, part in self.module.named_modules():
            if part is module:
                return path
        raise ValueError(f"the {type(module).__name__} is not a module of the {type(self.module).__name__}: expected one, or its path")
