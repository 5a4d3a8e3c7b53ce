# SPDX-License-Identifier: Apache-2.0
"""The log in tensorboard_dir: the values of each step, and of evaluations."""

import math


class StepLog:
    """A tracker of its own, on the main process."""

    def __init__(self, accelerator, args):
        self.accelerator, self.logs_norm = accelerator, args.log_params_norm
        self.evaluated: dict = {}
        self.tracker = accelerator.start_tracker("tensorboard", "megatron", str(args.tensorboard_dir))

    def add(self, engine, values, skipped, norm):
        """Logs the values of one step."""
        told = {name: float(value) for name, value in values.items() if value.dim() == 0}
        if engine.optimizer is not None:
            group = engine.optimizer.param_groups[0]
            told |= {"learning-rate": float(group["lr"]), "weight-decay": float(group.get("weight_decay", 0.0))}
        told |= {"batch-size": engine.plugin.global_batch_size, "loss-scale": float(self.accelerator.loss_scale), "skipped-iterations": int(skipped)}
        if norm is not None:
            told["grad-norm"] = norm
        if self.logs_norm:
            told["params-norm"] = self.norm_of_parameters(engine.module)
        self.tracker.log(told, step=engine.iteration)

    def norm_of_parameters(self, model):
        """Each element counts once. All ranks call; where they have parts of the model, the main process gets it whole, and the others have 0."""
        names = {name for name, _ in self.accelerator.unwrap_model(model).named_parameters()}  # without those that are tied to another one
        whole = self.accelerator.get_state_dict(model)
        return math.sqrt(sum(float(value.detach().float().square().sum()) for name, value in whole.items() if name in names))

    def add_evaluation(self, values):
        """Logs the values of one batch."""
        for name, value in values.items():
            if value.dim() == 0:
                total, count = self.evaluated.get(name, (0.0, 0))
                self.evaluated[name] = total + float(value), count + 1

    def end_evaluation(self, step):
        """Writes the means since the latest call."""
        means = {name: total / count for name, (total, count) in self.evaluated.items()}
        if means:
            self.tracker.log({**{f"{name} validation": mean for name, mean in means.items()},
                              **{f"{name} validation ppl": math.exp(min(20, mean)) for name, mean in means.items()}}, step=step)
        self.evaluated = {}
