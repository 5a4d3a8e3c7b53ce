# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's schedule of learning rates and weight decay, by its formulas. It counts samples: each update is a global batch."""

import math

from torch.optim.lr_scheduler import LRScheduler


def lengths(args):
    """{"warmup", "decay", "ramp"} in samples, from Megatron's arguments: numbers of iterations, else of samples."""
    if args.train_iters is not None:
        size = args.global_batch_size
        decay = (args.train_iters if args.lr_decay_iters is None else args.lr_decay_iters) * size
        ramp, warmup = args.train_iters * size, (args.lr_warmup_iters or 0) * size
    elif args.train_samples is not None:
        decay = args.train_samples if args.lr_decay_samples is None else args.lr_decay_samples
        ramp, warmup = args.train_samples, args.lr_warmup_samples or 0
    else:
        raise ValueError("MegatronLMDummyScheduler: either train_iters or train_samples should be provided: expected total_num_steps of it, or one of these "
                         "fields of MegatronLMPlugin")
    if args.lr_warmup_fraction is not None:
        if warmup:
            raise ValueError("lr_warmup_fraction and a number of warm-up steps are both given: expected one of them")
        warmup = args.lr_warmup_fraction * decay
    if decay <= 0 or warmup >= decay:
        raise ValueError(f"the schedule warms up over {warmup:g} of {decay:g} samples: expected fewer than all")
    return {"warmup": warmup, "decay": decay, "ramp": ramp}


class MegatronSchedule(LRScheduler):
    """The rates of an optimizer's groups rise from lr_warmup_init to their own, and then fall to min_lr. A group's lr_mult and wd_mult scale what it gets."""

    counts_updates = True  # and not the rows of all ranks

    def __init__(self, optimizer, args):
        self.samples_per_step, self.lengths, self.samples_elsewhere = args.global_batch_size, lengths(args), 0
        self.style, self.min_lr, self.first_lr = args.lr_decay_style, args.min_lr, args.lr_warmup_init
        self.ramp_style, self.decays = args.weight_decay_incr_style, (args.start_weight_decay, args.end_weight_decay)
        if self.ramp_style == "constant" and self.decays != (None, None) and self.decays[0] != self.decays[1]:
            raise ValueError(f"start_weight_decay={self.decays[0]} and end_weight_decay={self.decays[1]} with weight_decay_incr_style='constant': expected "
                             "the same value twice, none, or another style")
        if self.ramp_style != "constant" and None in self.decays:
            raise ValueError(f"weight_decay_incr_style={self.ramp_style!r}: expected start_weight_decay and end_weight_decay")
        if self.min_lr < 0 or any(group["lr"] < self.min_lr * group.get("lr_mult", 1.0) for group in optimizer.param_groups):
            raise ValueError(f"min_lr={self.min_lr}: expected 0 or more, and at most the learning rate of each group")
        for group in optimizer.param_groups:
            group.setdefault("wd_mult", 0.0 if group.get("weight_decay") == 0 and optimizer.defaults.get("weight_decay") else 1.0)
        super().__init__(optimizer)

    @property
    def samples(self):
        """The samples of all updates so far."""
        return self.samples_elsewhere + self.last_epoch * self.samples_per_step

    def get_lr(self):
        samples = self.samples
        if self.decays[0] is not None:
            decay = self.weight_decay(samples)
            for group in self.optimizer.param_groups:
                group["weight_decay"] = decay * group["wd_mult"]
        multipliers = [group.get("lr_mult", 1.0) for group in self.optimizer.param_groups]
        return [self.rate(samples, base / multiplier if multiplier else 0.0) * multiplier for base, multiplier in zip(self.base_lrs, multipliers)]

    def rate(self, samples, highest):
        """After this many samples, of a group with this rate."""
        warmup, end = self.lengths["warmup"], self.lengths["decay"]
        if warmup > 0 and samples <= warmup:
            return self.first_lr + (highest - self.first_lr) * samples / warmup
        if self.style == "constant":
            return highest
        if samples > end:
            return self.min_lr
        if self.style == "inverse-square-root":
            return max(self.min_lr, highest * math.sqrt(max(warmup, 1)) / math.sqrt(max(samples, 1)))
        part = (samples - warmup) / (end - warmup)
        left = 1.0 - part if self.style == "linear" else 0.5 * (math.cos(math.pi * part) + 1.0)
        return self.min_lr + left * (highest - self.min_lr)

    def weight_decay(self, samples):
        """After this many samples."""
        start, end = self.decays
        if self.ramp_style == "constant" or samples > self.lengths["ramp"]:
            return end
        part = samples / self.lengths["ramp"]
        grown = part if self.ramp_style == "linear" else 0.5 * (math.cos(math.pi * (1 - part)) + 1.0)
        return start + grown * (end - start)

    def state_dict(self):
        return {"num_steps": self.samples, "last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict):
        """Goes on behind the samples of a state, whose updates may have had another number of them: on other ranks, or of other micro-batches."""
        self.last_epoch = state_dict["last_epoch"]
        self.samples_elsewhere = state_dict["num_steps"] - self.last_epoch * self.samples_per_step
        self._last_lr = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = rate
