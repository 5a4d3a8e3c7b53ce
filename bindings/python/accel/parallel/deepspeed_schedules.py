# SPDX-License-Identifier: Apache-2.0
"""The schedules that DeepSpeed's configuration can name, with the formulas and defaults of DeepSpeed 0.19. They count updates: an iteration of -1 is
before the first."""

import logging
import math

from torch.optim.lr_scheduler import LRScheduler

_logger = logging.getLogger(__name__)
_REQUIRED = object()
_WARMUP = {"warmup_num_steps": 1000, "warmup_type": "log"}
PARAMETERS = {
    "LRRangeTest": {"lr_range_test_min_lr": 1e-3, "lr_range_test_step_size": 2000, "lr_range_test_step_rate": 1.0, "lr_range_test_staircase": False},
    "OneCycle": {"cycle_min_lr": _REQUIRED, "cycle_max_lr": _REQUIRED, "decay_lr_rate": 0.0, "cycle_first_step_size": 2000,
                 "cycle_second_step_size": None, "cycle_first_stair_count": 0, "cycle_second_stair_count": None, "decay_step_size": 0,
                 "cycle_momentum": True, "cycle_min_mom": 0.8, "cycle_max_mom": 0.9, "decay_mom_rate": 0.0},
    "WarmupLR": {"warmup_min_lr": 0.0, "warmup_max_lr": None, **_WARMUP},
    "WarmupDecayLR": {"total_num_steps": _REQUIRED, "warmup_min_lr": 0.0, "warmup_max_lr": 0.001, **_WARMUP},
    "WarmupCosineLR": {"total_num_steps": _REQUIRED, "warmup_min_ratio": 0.0, "cos_min_ratio": 0.0001, **_WARMUP},
}


def settings_of(kind, given):
    """All parameters of a schedule, those that the configuration has and the defaults of the others."""
    known = PARAMETERS.get(kind)
    if known is None:
        raise NotImplementedError(f"scheduler.type={kind!r}: expected {', '.join(sorted(PARAMETERS))} in DeepSpeed's configuration, or a scheduler in "
                                  "the code")
    unknown = sorted(set(given) - set(known) - {"last_batch_iteration"})
    if unknown:
        raise ValueError(f"scheduler.params of DeepSpeed's configuration has {unknown[0]!r}, which {kind} does not; expected some of "
                         f"{', '.join(known)}")
    settings = {**known, **given}
    for name, value in settings.items():
        if value is _REQUIRED or value == "auto":
            where = ", or that of DummyScheduler" if name == "total_num_steps" else ""
            raise ValueError(f"scheduler.params.{name} of DeepSpeed's configuration is {'missing' if value is _REQUIRED else value}: expected a number "
                             f"there{where}")
    if settings.get("warmup_type", "log") not in ("log", "linear"):
        _logger.warning("scheduler.params.warmup_type=%r of DeepSpeed's configuration: expected 'log' or 'linear'; it is 'log' now", settings["warmup_type"])
        settings["warmup_type"] = "log"
    for name, least in (("warmup_num_steps", 1), ("lr_range_test_step_size", 1), ("cycle_first_step_size", 1), ("cycle_second_step_size", 0)):
        value = settings.get(name)
        if value is not None and (not isinstance(value, (int, float)) or value < least):
            raise ValueError(f"scheduler.params.{name}={value!r} of DeepSpeed's configuration: expected a number of at least {least}")
    if "warmup_num_steps" in settings:
        settings["warmup_num_steps"] = max(2, settings["warmup_num_steps"])
        if settings.get("total_num_steps", math.inf) < settings["warmup_num_steps"]:
            _logger.warning("scheduler.params.total_num_steps=%s of DeepSpeed's configuration is below warmup_num_steps=%s",
                            settings["total_num_steps"], settings["warmup_num_steps"])
    return settings


class ConfiguredSchedule(LRScheduler):
    """A schedule of DeepSpeed's configuration. Its state is DeepSpeed's."""

    counts_updates = True  # and not the rows of all ranks

    def __init__(self, optimizer, kind, given):
        self.kind, self.settings = kind, settings_of(kind, given)
        if kind == "OneCycle" and self.settings["cycle_momentum"] and "betas" not in optimizer.defaults:
            _logger.warning("scheduler.params.cycle_momentum of DeepSpeed's configuration is without effect: %s has no betas", type(optimizer).__name__)
            self.settings["cycle_momentum"] = False
        super().__init__(optimizer)

    def get_lr(self):
        rates = getattr(self, f"_rates_of_{self.kind}")(self.last_epoch - 1)
        if self.kind == "OneCycle" and self.settings["cycle_momentum"]:
            for group, momentum in zip(self.optimizer.param_groups, self._momenta(self.last_epoch - 1)):
                group["betas"] = momentum, 0.99
        return rates

    def state_dict(self):
        return {"last_batch_iteration": self.last_epoch - 1}

    def load_state_dict(self, state_dict):
        self.last_epoch = state_dict["last_batch_iteration"] + 1
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _each(self, name):
        """A setting of each group."""
        value, count = self.settings[name], len(self.optimizer.param_groups)
        if not isinstance(value, (list, tuple)):
            return [value] * count
        if len(value) != count:
            raise ValueError(f"scheduler.params.{name} of DeepSpeed's configuration has {len(value)} values; expected {count}, as many as groups of "
                             "parameters")
        return list(value)

    def _warmed(self, iteration):
        """How far the warm-up is, from 0 to 1."""
        steps = self.settings["warmup_num_steps"]
        return iteration / steps if self.settings["warmup_type"] == "linear" else 1.0 / math.log(steps) * math.log(iteration + 1)

    def _warming(self, iteration, after):
        """Between the two rates of a warm-up; behind it a part of `after`."""
        low = self._each("warmup_min_lr")
        if iteration < 0:
            return low
        high = self.base_lrs if self.settings["warmup_max_lr"] is None else self._each("warmup_max_lr")
        part = self._warmed(iteration) if iteration < self.settings["warmup_num_steps"] else after
        return [smaller + (larger - smaller) * part for smaller, larger in zip(low, high)]

    def _rates_of_WarmupLR(self, iteration):
        return self._warming(iteration, 1.0)

    def _rates_of_WarmupDecayLR(self, iteration):
        total = self.settings["total_num_steps"]
        return self._warming(iteration, max(0.0, float(total - iteration) / float(max(1.0, total - self.settings["warmup_num_steps"]))))

    def _rates_of_WarmupCosineLR(self, iteration):
        settings = self.settings
        if iteration < 0:
            return [0.0] * len(self.base_lrs)
        if iteration < settings["warmup_num_steps"]:
            ratio = settings["warmup_min_ratio"] + self._warmed(iteration) * (1.0 - settings["warmup_min_ratio"])
        else:
            part = min(1.0, (iteration - settings["warmup_num_steps"] + 1) / max(1, settings["total_num_steps"] - settings["warmup_num_steps"]))
            ratio = max(0.0, settings["cos_min_ratio"] + (1.0 - settings["cos_min_ratio"]) * (1 + math.cos(math.pi * part)) / 2)
        return [rate * ratio for rate in self.base_lrs]

    def _rates_of_LRRangeTest(self, iteration):
        interval = float(iteration + 1) / self.settings["lr_range_test_step_size"]
        if self.settings["lr_range_test_staircase"]:
            interval = math.floor(interval)
        increase = 1 + self.settings["lr_range_test_step_rate"] * interval
        return [rate * increase for rate in self._each("lr_range_test_min_lr")]

    def _cycle(self):
        """The lengths of the cycle's two halves."""
        first, second = self.settings["cycle_first_step_size"], self.settings["cycle_second_step_size"]
        return float(first), float(first if second is None else second)

    def _height(self, iteration):
        """Where the cycle is between its bounds, which it may climb and descend by stairs."""
        first, second = self._cycle()
        up, down = self.settings["cycle_first_stair_count"], self.settings["cycle_second_stair_count"]
        down = up if down is None else down
        length = first + second
        place = 1.0 + (iteration + 1) / length - math.floor(1 + (iteration + 1) / length)
        grows = place <= first / length
        stairs = up if grows else down
        if stairs <= 0:
            return place / (first / length) if grows else (place - 1) / (first / length - 1)
        number = (iteration + 1) % length
        return math.floor(number * stairs / first if number <= first else (length - number) * stairs / second) / stairs

    def _decay(self, iteration, rate):
        """The factor behind the cycle."""
        if math.isclose(self.settings["decay_step_size"], 0) or math.isclose(rate, 0):
            return 1
        return 1 + rate * ((iteration - sum(self._cycle()) + 1) / self.settings["decay_step_size"])

    def _rates_of_OneCycle(self, iteration):
        low = self._each("cycle_min_lr")
        if iteration < 0:
            return low
        if iteration < sum(self._cycle()):
            return [smaller + (larger - smaller) * self._height(iteration) for smaller, larger in zip(low, self._each("cycle_max_lr"))]
        return [rate / self._decay(iteration, self.settings["decay_lr_rate"]) for rate in low]

    def _momenta(self, iteration):
        low, high = self._each("cycle_min_mom"), self._each("cycle_max_mom")
        if iteration < 0:
            return low
        if iteration < sum(self._cycle()):
            return [larger - (larger - smaller) * self._height(iteration) for smaller, larger in zip(low, high)]
        return [momentum * self._decay(iteration, self.settings["decay_mom_rate"]) for momentum in high]
