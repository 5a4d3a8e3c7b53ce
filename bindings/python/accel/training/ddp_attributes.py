# SPDX-License-Identifier: Apache-2.0
"""The attributes of torch's DistributedDataParallel for a DistributedModel: the settings of the exchange, and where the model is."""

import torch


def _device(model):
    return next((one.device for one in model.module.parameters()), torch.device("cpu"))


def _index(model):
    """The index of the accelerator where the model is; None on the CPU."""
    device = _device(model)
    return None if device.type in ("cpu", "meta") else device.index


# Each attribute follows from the settings of the exchange, those of DistributedDataParallelKwargs, and the model.
_OF_MODEL = {
    "broadcast_buffers": lambda model: model.exchange.broadcast_buffers,
    "bucket_bytes_cap": lambda model: int(model.exchange.bucket_cap_mb * 1024 * 1024),
    "device": _device,
    "device_ids": lambda model: None if _index(model) is None else [_index(model)],
    "device_type": lambda model: _device(model).type,
    "dim": lambda model: model.exchange.dim,
    "find_unused_parameters": lambda model: model.exchange.find_unused_parameters,
    "gradient_as_bucket_view": lambda model: model.exchange.gradient_as_bucket_view is not False,  # the engine's default is on
    "is_multi_device_module": lambda model: len({one.device for one in model.module.parameters()}) > 1,
    "join_device": _device,
    "mixed_precision": lambda model: None,  # it is the Accelerator's
    "modules_buffers": lambda model: list(model.module.buffers()),
    "named_module_buffers": lambda model: dict(model.module.named_buffers()),
    "output_device": _index,
    "parameters_to_ignore": lambda model: set(getattr(model.module, "_ddp_params_and_buffers_to_ignore", ())),
    "static_graph": lambda model: model.exchange.static_graph,
}
NAMES = frozenset(_OF_MODEL)


def value(model, name):
    return _OF_MODEL[name](model)
