# SPDX-License-Identifier: Apache-2.0
"""Models: Module, Parameter, the engine's layers; `nn.functional` has the operators."""

from ..tensors import functional
from .layers import (GELU, BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv2d, CrossEntropyLoss, Dropout, Embedding, Flatten,
                     LayerNorm, Linear, MixtureOfExperts, ModuleList, MSELoss, Pipeline, ReLU, RMSNorm, SelfAttention, Sequential, Sigmoid, SiLU, Tanh,
                     from_config, from_folder, from_package, load_torchscript, sentence_embedding)
from .module import Module, Parameter, PreparedModule

__all__ = ["GELU", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv2d", "CrossEntropyLoss", "Dropout", "Embedding",
           "Flatten", "LayerNorm", "Linear", "MSELoss", "MixtureOfExperts", "Module", "ModuleList", "Parameter", "Pipeline", "PreparedModule",
           "RMSNorm", "ReLU", "SelfAttention", "Sequential", "SiLU", "Sigmoid", "Tanh", "from_config", "from_folder", "from_package", "functional", "load_torchscript", "sentence_embedding"]
