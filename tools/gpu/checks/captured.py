# SPDX-License-Identifier: Apache-2.0
"""A captured step of an MLP and of a GPT: the losses of 20 steps are those of steps without a capture, the counts say that the device did
them again, and both are timed."""

import time

import accel
from accel import Accelerator, nn, optim
from accel.nn import functional as F
from result import DEVICE, SHORT, figure, require

STEPS, WARMUPS, TIMED = 20, 3, 5 if SHORT else 50
# The CPU and the simulated device have the bits. A GPU may take other kernels for a product, and add in another order.
TOLERANCE = 1e-4 if DEVICE == "cuda" else 0
WIDTH, CONTEXT, BLOCKS, VOCABULARY = (16, 8, 1, 32) if SHORT else (256, 128, 4, 256)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out, self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length = x.shape[0], x.shape[1]
        query, key, value = self.qkv(self.before_attention(x)).reshape(rows, length, 3, 4, WIDTH // 4).permute([2, 0, 3, 1, 4]).unbind(0)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


def mlp():
    width = 16 if SHORT else 512
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(width, 10)), accel.randn(64, width), accel.randint(0, 10, [64])


def gpt():
    tokens = accel.randint(0, VOCABULARY, [8, CONTEXT + 1])
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *[Block() for _ in range(BLOCKS)], nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    return model, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def train(make, is_captured):
    """(losses, milliseconds of a step, counts)"""
    accelerator = Accelerator()
    accel.set_seed(5)
    model, inputs, labels = make()
    inputs, labels = inputs.to(accelerator.device), labels.to(accelerator.device)
    model, optimizer = accelerator.prepare(model, optim.AdamW(model.parameters(), lr=1e-3))

    def step(inputs, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        accelerator.backward(loss)
        optimizer.step()
        return loss

    taken = accelerator.capture(step, warmup_steps=WARMUPS) if is_captured else step
    losses = [taken(inputs, labels).item() for _ in range(STEPS)]
    counts = taken.counts if is_captured else None
    began = time.perf_counter()
    for _ in range(TIMED):
        last = taken(inputs, labels)
    last.item()  # waits
    return losses, (time.perf_counter() - began) / TIMED * 1e3, counts


def main():
    for make in (mlp, gpt):
        name = make.__name__
        expected, plain_ms, _ = train(make, is_captured=False)
        found, captured_ms, counts = train(make, is_captured=True)
        print(f"{name}: plain {expected}\n{name}: captured {found}")
        differences = [abs(one - other) / max(1, abs(one)) for one, other in zip(expected, found)]
        figure("captured_step", model=name, plain_ms=plain_ms, captured_ms=captured_ms, captures=counts.captures, replays=counts.replays,
               largest_difference=max(differences))
        require(expected[-1] < expected[0], f"{name}: the losses do not fall: {expected}")
        for step, difference in enumerate(differences):
            require(difference <= TOLERANCE, f"{name}, step {step}: the loss is {expected[step]}, of the captured step {found[step]}")
        recorded, plain = (STEPS, 1, STEPS - WARMUPS), (STEPS, 0, 0)
        allowed = {"cuda": (recorded,), "cpu": (plain,)}.get(DEVICE, (recorded, plain))  # LibTorch 2.11 has no graphs for a plugin's device
        require(tuple(counts) in allowed, f"{name}: steps, recordings and replays are {tuple(counts)}; expected {allowed[0]}")


main()
