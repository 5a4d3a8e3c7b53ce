"""What all layers have whose forward is the engine's."""

from .module import Module


class Layer(Module):
    """A layer whose forward is the engine's."""

    def __init__(self, handle, **shown):
        self._adopt(handle)
        object.__setattr__(self, "_shown", shown)

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self._shown.items())


def last_of(shape):
    """The last dimension of a shape, which may be that alone."""
    return shape[-1] if isinstance(shape, (list, tuple)) else shape
