# SPDX-License-Identifier: Apache-2.0
"""Weights by other names than they have: below a prefix, and all names of a tensor that a model has at several places."""

from collections.abc import Mapping


def second_names(names, groups):
    """For each name of the groups that is not among the names the first one of its group that is."""
    firsts = ((group, next((name for name in group if name in names), None)) for group in groups)
    return {name: first for group, first in firsts if first is not None for name in group if name not in names}


def with_first(names, groups):
    """The groups, in which those of the names come first."""
    return [sorted(group, key=lambda name: name not in names) for group in groups]


class PrefixedDataset(Mapping):
    """The part of a mapping whose keys begin with a prefix, without it."""

    def __init__(self, dataset, prefix):
        self.dataset = dataset
        self.prefix = prefix

    def __getitem__(self, key):
        return self.dataset[f"{self.prefix}{key}"]

    def __contains__(self, key):
        return f"{self.prefix}{key}" in self.dataset

    def __iter__(self):
        return (key[len(self.prefix):] for key in self.dataset if key.startswith(self.prefix))

    def __len__(self):
        return sum(1 for _ in self)


class WeightsByAllNames(Mapping):
    """Weights by all names of the tensors that a model shares, where they have one: `shared` are the groups of their names."""

    def __init__(self, weights, shared):
        self.weights = weights
        self.first_names = second_names(weights, shared)

    def __getitem__(self, key):
        return self.weights[self.first_names.get(key, key)]

    def __contains__(self, key):
        return key in self.first_names or key in self.weights

    def __iter__(self):
        yield from self.weights
        yield from self.first_names

    def __len__(self):
        return len(self.weights) + len(self.first_names)
