# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a rank's own for what it computes on its part of split tensors, such as dropout of its heads."""

import torch


class RegionRandom:
    """A branch of the common stream. The stream itself moves alike on all ranks, however many numbers each draws in the region, so that they
    draw the same behind it; and what is computed again from a saved stream draws the same again."""

    def __init__(self, model, rank):
        self.model, self.rank = model, rank
        self.common = None  # the generator and the state that it had, inside of a region
        self.is_needed = _drops(model)
        self.guarded: set = set()  # the paths of modules in which a region may begin
        self._end_after_errors("")

    def _end_after_errors(self, path):
        """A region ends with a forward that does, such as that of a recomputation which has all that it is for."""
        if self.is_needed and path not in self.guarded:
            self.guarded.add(path)
            self.model.get_submodule(path).register_forward_hook(lambda _, args, output: self.end() if output is None else None, always_call=True)

    def begin_behind(self, layer, parent):
        """A region begins with the output of a layer."""
        if self.is_needed:
            self._end_after_errors(parent)

            def begin(module, args, output):
                self.begin(module, output.device)

            layer.register_forward_hook(begin)

    def begin(self, module, device):
        """From here on the rank draws its own. Whether it did not before."""
        if not self.is_needed or not module.training or self.common is not None:
            return False
        generator = _generator_of(device)
        seed = int(torch.empty((), dtype=torch.int64, device=device).random_(generator=generator))
        self.common = generator, generator.get_state()
        generator.manual_seed((seed + (self.rank + 1) * 0x9E3779B97F4A7C15) % (1 << 63))
        return True

    def end(self):
        if self.common is not None:
            generator, state = self.common
            generator.set_state(state)
            self.common = None

    def around(self, dropout):
        """Makes a layer of dropout draw from the branch."""
        former = dropout.forward

        def forward(x):
            begins = self.begin(dropout, x.device)
            try:
                return former(x)
            finally:
                if begins:
                    self.end()

        dropout.forward = forward


def _drops(model):
    """Whether a model has dropout: in layers, or in its configuration, from which attention takes it."""
    config = getattr(getattr(model, "config", None), "__dict__", {})
    return (any(isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0 for module in model.modules()) or
            any("drop" in name and isinstance(value, (int, float)) and value > 0 for name, value in config.items()))


def _generator_of(device):
    if device.type == "cpu":
        return torch.default_generator
    backend = torch.get_device_module(device)
    return backend.default_generators[backend.current_device() if device.index is None else device.index]
