# SPDX-License-Identifier: Apache-2.0
"""The settings of load_and_quantize_model(), checked."""

import dataclasses
import warnings

import torch

from ..generated import settings
from ..generated.enums import CustomDtype

_PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TYPES = ("fp4", "nf4")


def _dtype(name, value):
    if isinstance(value, torch.dtype):
        return value
    if value not in _PRECISIONS:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(_PRECISIONS)}, or a torch.dtype")
    return _PRECISIONS[value]


@dataclasses.dataclass
class BnbQuantizationConfig(settings.BnbQuantizationConfig):
    """How load_and_quantize_model() quantizes a model: to 8 bits by LLM.int8, or to 4."""

    def __post_init__(self):
        for name in ("load_in_8bit", "load_in_4bit", "bnb_4bit_use_double_quant"):
            self._check(name, bool, "True or False")
        self._check("llm_int8_threshold", (int, float), "a number")
        for name in ("skip_modules", "keep_in_fp32_modules"):
            self._check(name, (list, type(None)), "a list of names of modules, or None")
        if self.load_in_8bit == self.load_in_4bit:
            raise ValueError(f"load_in_8bit and load_in_4bit are both {self.load_in_8bit}; expected one of them to be True")
        if self.bnb_4bit_quant_type not in _TYPES:
            raise ValueError(f"bnb_4bit_quant_type={self.bnb_4bit_quant_type!r}: expected one of {', '.join(_TYPES)}")
        if self.load_in_4bit and self.llm_int8_threshold != settings.BnbQuantizationConfig.llm_int8_threshold:
            warnings.warn("llm_int8_threshold has no effect with load_in_4bit; it is for load_in_8bit", stacklevel=3)
        self.bnb_4bit_compute_dtype = _dtype("bnb_4bit_compute_dtype", self.bnb_4bit_compute_dtype)
        self.target_dtype = CustomDtype.INT4 if self.load_in_4bit else torch.int8
        default = self.bnb_4bit_compute_dtype if self.load_in_4bit else torch.float16
        self.torch_dtype = default if self.torch_dtype is None else _dtype("torch_dtype", self.torch_dtype)

    def _check(self, name, kinds, expected):
        if not isinstance(getattr(self, name), kinds):
            raise ValueError(f"{name}={getattr(self, name)!r}: expected {expected}")
