"""Data and models of the examples, made on the spot: sequences of tokens, and images, each with a class. They need no download."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TOKENS = 64


def sequences(count, seed):
    """Sequences of 16 tokens; the class says whether most of them are in the first half of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, TOKENS, (count, 16), generator=generator)
    return TensorDataset(tokens, ((tokens < TOKENS // 2).sum(1) > 8).long())


def images(count, seed):
    """Images of 3 x 16 x 16 with noise; the class says which fourth of the rows is brighter."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 4, (count,), generator=generator)
    pixels = torch.randn(count, 3, 16, 16, generator=generator)
    for row, place in enumerate(classes.tolist()):
        pixels[row, :, 4 * place:4 * place + 4] += 0.3
    return TensorDataset(pixels, classes)


class SequenceClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


class ImageClassifier(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(16 * 64, 4))


def sequence_loaders(batch_size=16):
    """For training and evaluation."""
    return (DataLoader(sequences(256, seed=1), batch_size=batch_size, shuffle=True),
            DataLoader(sequences(75, seed=2), batch_size=batch_size))


def image_loaders(batch_size=16):
    """For training and evaluation."""
    return DataLoader(images(256, seed=1), batch_size=batch_size, shuffle=True), DataLoader(images(75, seed=2), batch_size=batch_size)
