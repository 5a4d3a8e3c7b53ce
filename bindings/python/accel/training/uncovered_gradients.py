"""Gradients that no exchange of the ranks has covered, found when an optimizer steps: the weights of the ranks would drift apart."""

import logging
import weakref

_logger = logging.getLogger(__name__)
_models: "weakref.WeakSet" = weakref.WeakSet()  # the prepared forwards of models whose gradients the ranks exchange


def watch(forward):
    """A model is prepared for several ranks."""
    forward.frozen = {id(parameter) for parameter in forward.model.parameters() if not parameter.requires_grad}
    _models.add(forward)


class UncoveredGradients:
    """Of one optimizer. What is found is a warning, once: the program may exchange gradients itself."""

    def __init__(self, optimizer):
        self.optimizer, self.seen, self.has_warned = optimizer, weakref.WeakKeyDictionary(), False

    def check(self):
        """Before an update. A model whose prepared forward did not run since the last one has exchanged nothing, and what was frozen when
        the model was prepared is exchanged never."""
        if self.has_warned:
            return
        for forward in _models:
            runs, idle = forward.runs, self.seen.get(forward) == forward.runs or forward.runs == 0
            self.seen[forward] = runs
            for name, parameter in self._suspects(forward, idle):
                if parameter.grad is not None:
                    return self._warn(name, "was frozen when its model was prepared: call requires_grad_() before prepare()" if not idle else
                                      f"comes from no forward of the prepared {type(forward.model.module).__name__}: call the object that prepare() "
                                      "returned, not another method of it nor the model inside")
        return None

    def _suspects(self, forward, idle):
        if not idle and not forward.frozen:
            return
        own = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        if idle or not own.isdisjoint(forward.frozen):
            for name, parameter in forward.model.module.named_parameters():
                if id(parameter) in own and (idle or id(parameter) in forward.frozen):
                    yield name, parameter

    def _warn(self, name, why):
        self.has_warned = True
        _logger.warning("the ranks have not exchanged the gradient of %r, and their weights drift apart unless the program exchanges it: it %s", name, why)
