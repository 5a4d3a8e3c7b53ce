# SPDX-License-Identifier: Apache-2.0
"""Whole values of sharded parameters, for a program that reads or changes them."""

import contextlib

from .. import capi
from ..engine.scopes import scope
from ..engine.torch_types import is_torch_model, is_torch_tensor
from ..engine.values import to_engine
from ..modules.module import Module
from ..state.job import current, sharded_by


def gathered(tensors, modifier_rank=None):
    """A scope in which these tensors are whole. Parameters that are not sharded only get the values of `modifier_rank` at its end."""
    return scope(capi.accel_gathered_parameters_begin, current(), [to_engine(tensor) for tensor in tensors],
                 -1 if modifier_rank is None else modifier_rank)


def GatheredParameters(params, modifier_rank=None, fwd_module=None, enabled=True):  # noqa: N802  (the name in DeepSpeed)
    """A scope in which sharded parameters show their whole values, on all ranks, which all open and leave it. `params` is a tensor, several,
    or a model, of torch or of accel. At its end all ranks take the changes of `modifier_rank`; None: changes are dropped. Without sharding
    it does nothing. `fwd_module` may be given, as for DeepSpeed; nothing depends on it."""
    if not enabled or not any(sharded_by()):
        return contextlib.nullcontext()
    return gathered(_tensors(params), modifier_rank)


def _tensors(params):
    """The parameters, each once."""
    if isinstance(params, Module) or is_torch_model(params):
        params = params.parameters()
    if isinstance(params, capi.accel_tensor) or is_torch_tensor(params):
        params = [params]
    params = list(params)
    for param in params:
        if not isinstance(param, capi.accel_tensor) and not is_torch_tensor(param):
            raise TypeError(f"params has a {type(param).__name__}; expected parameters of a model, or a model")
    return list({id(param): param for param in params}.values())
