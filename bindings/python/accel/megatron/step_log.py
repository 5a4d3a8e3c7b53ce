"""What tensorboard_dir gets: the values of each step, and of evaluations."""

import math


class StepLog:
    """A tracker of its own, on the main process."""

    def __init__(self, accelerator, args):
        self.accelerator, self.logs_norm = accelerator, args.log_params_norm
        self.evaluated: dict = {}
        self.tracker = accelerator.start_tracker("tensorboard", "megatron", str(args.tensorboard_dir))

    def add(self, engine, values, skipped, norm):
        """Of one step."""
        told = {name: float(value) for name, value in values.items() if value.dim() == 0}
        if engine.optimizer is not None:
            group = engine.optimizer.param_groups[0]
            told |= {"learning-rate": float(group["lr"]), "weight-decay": float(group.get("weight_decay", 0.0))}
        told |= {"batch-size": engine.plugin.global_batch_size, "loss-scale": float(self.accelerator.loss_scale), "skipped-iterations": int(skipped)}
        if norm is not None:
            told["grad-norm"] = norm
        if self.logs_norm:
            told["params-norm"] = math.sqrt(sum(float(parameter.detach().float().square().sum()) for parameter in engine.parameters()))
        self.tracker.log(told, step=engine.iteration)

    def add_evaluation(self, values):
        """Of one batch."""
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
