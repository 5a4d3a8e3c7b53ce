# SPDX-License-Identifier: Apache-2.0
"""Regions in which gradients are recorded or not; also decorators."""

from ..generated.methods import enable_grad, inference_mode, no_grad

__all__ = ["enable_grad", "inference_mode", "no_grad"]
