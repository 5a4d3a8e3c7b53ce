"""The engine's layers, with the names, arguments and initial distributions of torch.nn."""

from . import capi, ops
from .module import Module

_UNSET = capi.ACCEL_UNSET_DOUBLE


class _Layer(Module):
    """A layer whose forward is the engine's."""

    def __init__(self, handle, **shown):
        self._adopt(handle)
        object.__setattr__(self, "_shown", shown)

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self._shown.items())


class Linear(_Layer):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__(capi.accel_module_linear(in_features, out_features, int(bias)), in_features=in_features, out_features=out_features,
                         bias=bias)


class Embedding(_Layer):
    def __init__(self, num_embeddings, embedding_dim):
        super().__init__(capi.accel_module_embedding(num_embeddings, embedding_dim), num_embeddings=num_embeddings,
                         embedding_dim=embedding_dim)


class LayerNorm(_Layer):
    """Over the last dimension."""

    def __init__(self, normalized_shape, eps=None):
        size = normalized_shape[0] if isinstance(normalized_shape, (list, tuple)) else normalized_shape
        super().__init__(capi.accel_module_layer_norm(size, _UNSET if eps is None else eps), normalized_shape=size)


class RMSNorm(_Layer):
    """Over the last dimension."""

    def __init__(self, normalized_shape, eps=None):
        size = normalized_shape[0] if isinstance(normalized_shape, (list, tuple)) else normalized_shape
        super().__init__(capi.accel_module_rms_norm(size, _UNSET if eps is None else eps), normalized_shape=size)


class Dropout(_Layer):
    def __init__(self, p=0.5):
        super().__init__(capi.accel_module_dropout(p), p=p)


class BatchNorm(_Layer):
    """Of [batch, features, ...]."""

    def __init__(self, num_features, eps=None, momentum=None):
        eps, momentum = (_UNSET if setting is None else setting for setting in (eps, momentum))
        super().__init__(capi.accel_module_batch_norm(num_features, eps, momentum), num_features=num_features)


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class Conv2d(_Layer):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, groups=1, bias=True):
        super().__init__(capi.accel_module_conv2d(in_channels, out_channels, kernel_size, stride, padding, groups, int(bias)),
                         in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, stride=stride, padding=padding)


class SelfAttention(_Layer):
    """Self-attention [batch, length, embed_dim] with the parameters of torch.nn.MultiheadAttention."""

    def __init__(self, embed_dim, num_heads, causal=False, bias=True, dropout=0.0):
        super().__init__(capi.accel_module_attention(embed_dim, num_heads, int(causal), int(bias), dropout), embed_dim=embed_dim,
                         num_heads=num_heads, causal=causal)


class _Activation(_Layer):
    name = ""

    def __init__(self, *_, **__):
        super().__init__(capi.accel_module_activation(self.name))


class ReLU(_Activation):
    name = "relu"


class SiLU(_Activation):
    name = "silu"


class Tanh(_Activation):
    name = "tanh"


class Sigmoid(_Activation):
    name = "sigmoid"


class GELU(_Activation):
    def __init__(self, approximate="none"):
        object.__setattr__(self, "name", "gelu_new" if approximate == "tanh" else "gelu")
        super().__init__()


class Flatten(Module):
    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x):
        return ops.flatten(x, self.start_dim, self.end_dim)


class CrossEntropyLoss:
    """Mean cross entropy of class scores; label -100 is left out."""

    def __call__(self, logits, labels):
        return capi.accel_cross_entropy(logits, labels)


class MSELoss:
    def __call__(self, output, target):
        return ops.mse_loss(output, target)


class Sequential(_Layer):
    """Modules one after the other."""

    _is_made_of_parts = True

    def __init__(self, *modules):
        super().__init__(capi.accel_module_sequential([module.handle for module in modules]))
        self._hold(modules)

    def _hold(self, modules):
        self._modules.update({str(place): module for place, module in enumerate(modules)})

    def __getitem__(self, place):
        return list(self._modules.values())[place]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())


class ModuleList(Sequential):
    """Modules that a forward goes through by itself."""

    def __init__(self, modules=()):
        Module.__init__(self)
        object.__setattr__(self, "_shown", {})
        for module in modules:
            self.append(module)

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self


def from_config(config):
    """A model from the configuration of a Hugging Face model: the path of a config.json, or its text. Known: "gpt2"."""
    return _made_by(from_config, capi.accel_module_from_config(str(config)), str(config))


def load_torchscript(path):
    """A model that Python saved with torch.jit."""
    return _made_by(load_torchscript, capi.accel_module_load_torchscript(str(path)), str(path))


def _made_by(function, handle, *arguments):
    made = Module.of_handle(handle)
    made.__dict__.update(_make=function, _arguments=(arguments, {}))  # for copies
    return made
