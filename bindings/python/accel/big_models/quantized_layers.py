# SPDX-License-Identifier: Apache-2.0
"""Linear layers of torch whose weights are codes of 4 or 8 bits. The classes, and the tensors of state dicts, have bitsandbytes' names."""

import torch

from .. import capi  # noqa: F401  (registers the engine's operators)
from ..engine.bridge import not_traced

_BOOKS = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")


class QuantizedLinear(torch.nn.Linear):
    """A linear layer with a weight of codes, which is not trained; inputs get gradients. The weight is floating while it has no memory: one that is given
    to set_weight(), set_module_tensor_to_device() or load_state_dict() becomes codes. Converting to another dtype leaves codes and scales as they are."""

    kind = "llm_int8"  # of accel_quantization_options_t
    has_double_quantization = False
    compute_dtype = None
    threshold = 0.0
    _scales = None  # decoded, and the tensors that they were decoded from

    @property
    def code_names(self):
        """The names that the tensors of codes can have."""
        return ("weight", "SCB", "weight_format", *_BOOKS, f"weight.quant_state.bitsandbytes__{self.kind}")

    def codes(self):
        """The tensors of the weight, by their names."""
        return {"weight": self.weight, **{name: self._buffers[name] for name in self.code_names if name in self._buffers}}

    def set_weight(self, tensors, name="weight"):
        """Takes a floating weight, which becomes codes on its device, or codes; `name` is the weight's in errors."""
        weight, sizes = tensors["weight"], [self.out_features, self.in_features]
        if weight.is_floating_point():
            if list(weight.shape) != sizes:
                raise ValueError(f"{name} has the shape {list(weight.shape)}; expected {sizes}")
            values, names = torch.ops.accel.quantize_matrix(weight.detach(), kind=self.kind, has_double_quantization=self.has_double_quantization, name=name)
            tensors = dict(zip(names, values))
        elif torch.ops.accel.quantized_scales(list(tensors.values()), list(tensors))[1] != sizes:
            raise ValueError(f"{name} was quantized from another shape; expected {sizes}")
        former = self.codes()
        for own in former.keys() - tensors.keys():
            del self._buffers[own]
        for own, tensor in tensors.items():
            old = former.get(own)
            if old is not None and (old.shape, old.dtype, old.device) == (tensor.shape, tensor.dtype, tensor.device) and not old.is_meta:
                old.copy_(tensor)  # the tensors of a prepared model stay its own
            elif own == "weight":
                self._parameters[own] = torch.nn.Parameter(tensor.detach(), requires_grad=False)
            else:
                self._buffers[own] = tensor.detach()  # register_buffer() takes no names with dots

    def expect_codes(self, tensors, name):
        """Gets tensors without memory for codes that are loaded later."""
        self.set_weight(tensors, name)
        self._parameters["weight"] = torch.nn.Parameter(self.weight.to("meta"), requires_grad=False)
        self._buffers.update({own: self._buffers[own].to("meta") for own in tensors if own != "weight"})

    def _decoded(self):
        """Scales, sizes and group, which are decoded again when their tensors have changed; the changes of inference tensors are not counted."""
        tensors = self.codes()
        scales = [tensor for own, tensor in tensors.items() if own != "weight"]
        changes = None if any(tensor.is_inference() for tensor in scales) else [(tensor.data_ptr(), tensor._version) for tensor in scales]
        if changes is None or self._scales is None or self._scales[0] != changes:
            self._scales = changes, torch.ops.accel.quantized_scales(list(tensors.values()), list(tensors))
        return self._scales[1]

    @not_traced
    def forward(self, input):
        if self.weight.is_floating_point():
            return super().forward(input)
        scales, sizes, group = self._decoded()
        return torch.ops.accel.quantized_linear(input, self.weight, scales, self.bias, kind=self.kind, sizes=sizes, group=group,
                                                outlier_threshold=self.threshold, compute_dtype=self.compute_dtype)

    def _apply(self, fn, recurse=True):
        kept = {id(tensor) for own, tensor in self.codes().items() if own != "weight" and tensor.is_floating_point()}
        return super()._apply(lambda tensor: fn(tensor.view(torch.int32)).view(torch.float32) if id(tensor) in kept else fn(tensor), recurse)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        given = {own: state_dict[f"{prefix}{own}"] for own in self.code_names if f"{prefix}{own}" in state_dict}
        if "weight" in given:
            try:
                device = self.weight.device
                self.set_weight({own: tensor if device.type == "meta" else tensor.to(device, copy=True) for own, tensor in given.items()}, f"{prefix}weight")
            except (ValueError, RuntimeError) as error:
                error_msgs.append(str(error))
        rest = {name: tensor for name, tensor in state_dict.items() if name.startswith(prefix) and name[len(prefix):] not in given}
        missing = []
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing, unexpected_keys, error_msgs)
        missing_keys += [name for name in missing if name == f"{prefix}bias" or name == f"{prefix}weight" and "weight" not in given]

    def __getstate__(self):
        return {**vars(self), "_scales": None}


class Linear8bitLt(QuantizedLinear):
    """LLM.int8."""

    def extra_repr(self):
        return f"{super().extra_repr()}, threshold={self.threshold}"


class Linear4bit(QuantizedLinear):
    """nf4 or fp4."""

    kind = "nf4"

    def extra_repr(self):
        return f"{super().extra_repr()}, quant_type={self.kind}, compute_dtype={self.compute_dtype}"


def convert(layer, config, name):
    """Makes a torch.nn.Linear one with codes by a BnbQuantizationConfig; it stays the same object. One on the device meta has codes when it is loaded."""
    if config.load_in_8bit:
        layer.__class__, settings = Linear8bitLt, {"threshold": float(config.llm_int8_threshold)}
    else:
        layer.__class__, settings = Linear4bit, {"kind": config.bnb_4bit_quant_type, "has_double_quantization": config.bnb_4bit_use_double_quant,
                                                 "compute_dtype": config.bnb_4bit_compute_dtype}
    vars(layer).update(settings)
    layer.requires_grad_(False)
    if not layer.weight.is_meta:
        layer.set_weight({"weight": layer.weight}, f"{name}.weight")


def has_layers(model, kind=QuantizedLinear):
    """Whether a model has quantized layers, or those of a class."""
    return any(isinstance(module, kind) for module in model.modules())


def expect_codes(model, found):
    """Gets the quantized layers of a model ready for the codes that are among the `found` tensors of files, by their names."""
    for path, layer in model.named_modules():
        if isinstance(layer, QuantizedLinear):
            prefix = f"{path}." if path else ""
            given = {own: found[f"{prefix}{own}"] for own in layer.code_names if f"{prefix}{own}" in found}
            if "weight" in given and not given["weight"].is_floating_point():
                layer.expect_codes(given, f"{prefix}weight")
