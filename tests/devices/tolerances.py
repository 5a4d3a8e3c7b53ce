# SPDX-License-Identifier: Apache-2.0
"""How far what a device computes may be from what the CPU computes: the table for Python, beside tests/tolerances.hpp for C++.

Of each number, relative to the larger of 1 and its size, after two epochs of training.
"""

BY_DTYPE = {
    # Sums in another order and fused multiply-adds; TF32 is off unless it is asked for.
    "float32": 1e-5,
    # Each device has its own lists of the operators that autocast rounds, and rounds where another one has a fused kernel.
    "bfloat16": 5e-2,
    "float16": 5e-2,
    # Gradients that are rounded to bfloat16 on their way, and where a sum is between two of its numbers, to another one.
    "gradients in bfloat16": 1e-3,
    # Gradients of a low rank: the decomposition makes differences of float32 larger.
    "gradients of low rank": 1e-4,
}
# What the cases of device_program.py compute in; others compute in float32.
COMPUTED_IN = {"bf16": "bfloat16", "fp16": "float16", "compressed_gradients": "gradients in bfloat16", "low_rank_gradients": "gradients of low rank"}
# Devices whose kernels are the CPU's have the same bits, except in these cases: on the CPU, optimizers and gradient norms are fused kernels
# of the library, which round once where LibTorch's operators round each step.
EXACT_ON = ("sim",)
FUSED_ON_THE_CPU = (*COMPUTED_IN, "float32", "accumulation", "join", "local_sgd", "parameters", "callback")


def tolerance(case, device):
    if device in EXACT_ON and case not in FUSED_ON_THE_CPU:
        return 0.0
    return BY_DTYPE[COMPUTED_IN.get(case, "float32")]
