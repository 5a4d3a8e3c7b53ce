"""Gradients that the program computes by itself, without the engine's autograd: those of a model in torch or JAX, say."""

from . import capi
from .handlers import fill
from .state import current
from .values import to_engine
from .work import Work


class OwnGradients:
    """Averages the gradients of a module's trainable parameters, counted in the order of `module.named_parameters()`, over the ranks.
    The module only holds the parameters; optimizers, clipping and checkpoints take it as any other.

        with accelerator.accumulate():
            for index in reversed(range(len(gradients))):
                gradients.ready(index, computed(index))     # its exchange starts
            gradients.synchronize()
            optimizer.step()
    """

    def __init__(self, module, bucket_cap_mb=None):
        options = fill(capi.accel_parameters_options_t(), {"bucket_cap_mb": None if bucket_cap_mb is None else float(bucket_cap_mb)})
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
