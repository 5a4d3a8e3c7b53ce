# SPDX-License-Identifier: Apache-2.0
"""The training loop: the Accelerator, optimizers, schedules, models of torch."""
