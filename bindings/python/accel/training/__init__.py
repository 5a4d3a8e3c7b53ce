"""The training loop: the Accelerator, optimizers, schedules, models of torch."""
