"""Digits of a digital clock, with noise (Breiman et al., 1984): the same samples in every language."""

import accel
from accel import TensorDataset

SEGMENTS, DIGITS = 7, (0x77, 0x24, 0x5D, 0x6D, 0x2E, 0x6B, 0x7B, 0x25, 0x7F, 0x6F)


def make_digits(random, samples):
    """A dataset of `samples` pairs (features, label), drawn by a generator of 32 bits that begins at `random`."""
    features, labels = [], []

    def draw():
        nonlocal random
        random = (random * 1664525 + 1013904223) % 2**32
        return random

    for _ in range(samples):
        labels.append((draw() >> 16) % 10)
        features.append([(DIGITS[labels[-1]] >> segment & 1) + (draw() >> 24) / 128 - 1 for segment in range(SEGMENTS)])
    return TensorDataset(accel.tensor(features), accel.tensor(labels))
