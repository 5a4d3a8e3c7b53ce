# SPDX-License-Identifier: Apache-2.0
"""The speed of one workload for a model of torch: speed.py WORKLOAD STEPS WHO PRECISION

WHO is ours or ours_compile (this package), or accelerate, fused (AdamW) or compile (fused, and torch.compile). Ours is as the other is
except for the package. A line of JSON as bench/measure.c prints it; each sample waits for the device.
"""

import contextlib
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WORKLOAD, STEPS, WHO, PRECISION = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if WHO.startswith("ours"):
    from accel import Accelerator
else:
    from accelerate import Accelerator


def wait():
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        query, key, value = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class Gpt(nn.Module):
    """The model of bench/workloads.c."""

    def __init__(self, vocabulary=256, context=128, width=256, heads=4, blocks=4):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position.weight[:tokens.shape[1]])))


def gpt2_small():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, attn_implementation="sdpa"))


def mlp(width=512, depth=4, classes=10):
    return nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, classes))


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.weight * x


def tokens(vocabulary, context):
    drawn = torch.randint(0, vocabulary, (8, context + 1))
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


# Model, a batch on the host, learning rate, batches a step, warm-up, what a sample counts of (0: milliseconds).
WORKLOADS = {
    "train_gpt": (Gpt, lambda: tokens(256, 128), 3e-4, 4, 2, 4 * 8 * 128),
    "train_gpt2_small": (gpt2_small, lambda: tokens(50257, 1024), 3e-4, 1, 6, 8 * 1024),
    "train_mlp": (mlp, lambda: (torch.randn(64, 512), torch.randint(0, 10, (64,))), 1e-3, 1, 10, 0),
}


def loss_of(model, inputs, labels):
    logits = model(inputs)
    return F.cross_entropy(getattr(logits, "logits", logits).flatten(0, -2), labels.flatten())


def report(samples, unit, higher, **extra):
    memory = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None
    print(json.dumps({"bench": WORKLOAD, "params": {"precision": PRECISION, "who": WHO}, "value": statistics.median(samples), "min": min(samples),
                      "max": max(samples), "samples": len(samples), "unit": unit, "higher_is_better": higher, "device_peak_mb": memory, **extra}))


def train():
    make, batch, rate, accumulate, warmup, counted = WORKLOADS[WORKLOAD]
    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision=PRECISION, gradient_accumulation_steps=accumulate)
    model = make().to(accelerator.device)
    if WHO.endswith("compile"):
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, **({"fused": True} if WHO in ("fused", "compile", "ours_compile") else {}))
    rows = torch.utils.data.TensorDataset(*(part.repeat((STEPS + warmup) * accumulate, *[1] * (part.dim() - 1)) for part in batch()))
    loader = torch.utils.data.DataLoader(rows, batch_size=len(rows) // ((STEPS + warmup) * accumulate), shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches, samples = iter(loader), []
    for step in range(warmup + STEPS):
        began = time.perf_counter()
        for _ in range(accumulate):
            inputs, labels = next(batches)
            with accelerator.accumulate(model) if accumulate > 1 else contextlib.nullcontext():
                loss = loss_of(model, inputs, labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        wait()
        if step >= warmup:
            samples.append(time.perf_counter() - began)
    if counted:
        report([counted / seconds for seconds in samples], "tokens/s", True, loss=loss.item())
    else:
        report([seconds * 1e3 for seconds in samples], "ms", False, loss=loss.item())


def overhead():
    """Microseconds of a step of a model with one number."""
    accelerator = Accelerator()
    model = Scalar()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-6))
    x = torch.tensor(0.5, device=accelerator.device)

    def loop(steps):
        began = time.perf_counter()
        for _ in range(steps):
            with accelerator.accumulate(model):
                accelerator.backward(model(x))
                optimizer.step()
                optimizer.zero_grad()
        wait()
        return (time.perf_counter() - began) / steps * 1e6

    loop(STEPS)
    report([loop(STEPS) for _ in range(3)], "us", False)


overhead() if WORKLOAD == "overhead" else train()
