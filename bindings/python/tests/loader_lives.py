# SPDX-License-Identifier: Apache-2.0
"""Random lives of a prepared loader of torch: a run that saves its state somewhere and goes on, and another one that loads it there, which
must see the same batches and draw the same numbers. `python loader_lives.py FIRST COUNT`, in one process or in each rank of a job."""

import random
import shutil
import sys
import tempfile

import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, TensorDataset,
                              WeightedRandomSampler)

from accel import Accelerator, DataLoaderConfiguration
from accel.utils import broadcast_object_list

EPOCHS = 3


class Items(Dataset):
    """Items that may draw a number each."""

    def __init__(self, size, draws):
        self.size, self.draws = size, draws

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.stack([torch.tensor(float(index)), torch.rand(()) if self.draws else torch.zeros(())])


class Stream(IterableDataset):
    """A stream without a length, whose order comes from a generator of its own or is always the same."""

    def __init__(self, size, generator):
        self.size, self.generator = size, generator

    def __iter__(self):
        order = range(self.size) if self.generator is None else torch.randperm(self.size, generator=self.generator).tolist()
        yield from (float(index) for index in order)


class Sampler:
    """A sampler of the program, which draws each index from torch's default generator when it is asked for."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        yield from (int(torch.randint(self.size, ())) for _ in range(self.size))

    def __len__(self):
        return self.size


def choose(numbers, ranks):
    """The settings of a life."""
    kind = numbers.choice(["rows", "items", "items", "stream"])
    own, workers = numbers.random() < 0.4, numbers.choice([0, 0, 1])
    life = {"kind": kind, "size": numbers.choice([7, 8, 12]), "batch_size": numbers.choice([2, 4]), "own": own, "workers": workers,
            "persistent": workers > 0 and numbers.random() < 0.5, "drop_last": numbers.random() < 0.2, "split": numbers.random() < 0.3,
            "order": numbers.choice(["shuffle", "shuffle", "sequential", "weighted", "replacement", "seedable", "batches", "program"]),
            "dispatch": numbers.choice([None, None, True, False]), "rng_types": numbers.choice([None, ["torch", "generator"]]),
            "draws": workers == 0 and numbers.random() < 0.5, "uses_skip": numbers.random() < 0.5}
    if ranks > 1 and life["order"] in ("weighted", "program"):
        life["rng_types"] = ["torch", "generator"]  # else the ranks have orders of their own
    if life["order"] == "program" and kind == "items":
        life["workers"], life["persistent"] = 0, False  # for workers it is drawn further ahead
    if kind == "stream" and workers and life["own"]:
        life["own"] = False  # the order of a stream in a worker is kept by nobody
    return life


def loader_of(life):
    generator = torch.Generator().manual_seed(7) if life["own"] else None
    settings = {"num_workers": life["workers"], "persistent_workers": life["persistent"], "generator": generator}
    size, batch_size, drop_last, order = life["size"], life["batch_size"], life["drop_last"], life["order"]
    if life["kind"] == "stream":
        return DataLoader(Stream(size, generator), batch_size=batch_size, drop_last=drop_last, **settings)
    data = TensorDataset(torch.arange(size, dtype=torch.float32)) if life["kind"] == "rows" else Items(size, life["draws"])
    if order == "batches":
        return DataLoader(data, batch_sampler=BatchSampler(RandomSampler(range(size), generator=generator), batch_size, drop_last), **settings)
    sampler = {"sequential": lambda: SequentialSampler(range(size)), "weighted": lambda: WeightedRandomSampler(torch.ones(size), size, generator=generator),
               "replacement": lambda: RandomSampler(range(size), replacement=True, generator=generator), "program": lambda: Sampler(size)}.get(order)
    if sampler is None:
        return DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=drop_last, **settings)
    return DataLoader(data, batch_size=batch_size, sampler=sampler(), drop_last=drop_last, **settings)


def values(batch):
    return [part.tolist() for part in batch] if isinstance(batch, (list, tuple)) else batch.tolist()


class Life:
    """One run: what it saw is in `seen`, by (epoch, batches of it)."""

    def __init__(self, accelerator, life, seed):
        accelerator.free_memory()
        torch.manual_seed(seed + accelerator.process_index)
        accelerator.dataloader_config = DataLoaderConfiguration(split_batches=life["split"], dispatch_batches=life["dispatch"],
                                                                use_seedable_sampler=life["order"] == "seedable")
        accelerator.rng_types = ["generator"] if life["rng_types"] is None else life["rng_types"]
        self.accelerator, self.life, self.seen = accelerator, life, {}
        self.loader = accelerator.prepare(loader_of(life))

    def run(self, begin, length, saves):
        """From a point on; at the points of `saves` the state goes into a folder. A point (epoch, 0) is before the epoch."""
        first, taken = begin
        for epoch in range(first, EPOCHS):
            if epoch != first or begin in saves and not self.seen:
                self.save_at((epoch, 0), saves)
            self.seen[epoch, -1] = torch.rand(1).item() if taken == 0 else None
            goes_on = epoch == first and self.life["uses_skip"] and begin != (0, 0)
            batches = self.accelerator.skip_first_batches(self.loader, taken) if goes_on else self.loader
            for batch in batches:
                taken += 1
                self.seen[epoch, taken] = values(batch), torch.rand(1).item()
                if taken != length:
                    self.save_at((epoch, taken), saves)
                else:
                    self.save_at((epoch, "last"), saves)
            taken = 0
        return self.seen

    def save_at(self, point, saves):
        if point in saves:
            self.accelerator.save_state(saves[point])


def point_after(point):
    """Where a run goes on."""
    return (point[0] + 1, 0) if point[1] == "last" else point


def check(accelerator, number):
    numbers = random.Random(number)
    life = choose(numbers, accelerator.num_processes)
    seen = Life(accelerator, life, 5).run((0, 0), None, {})
    length = max(taken for _, taken in seen)
    if length < 1:  # a last batch that is dropped is all that there is
        return None
    points = [(epoch, taken) for epoch in range(EPOCHS) for taken in range(length)] + [(epoch, "last") for epoch in range(EPOCHS - 1)]
    point, second = sorted(numbers.sample(points, 2), key=lambda point: points_order(point, length))
    folder = broadcast_object_list([tempfile.mkdtemp() if accelerator.is_main_process else None])[0]
    try:
        expected = Life(accelerator, life, 5).run((0, 0), length, {point: f"{folder}/1"})
        failure = None  # of a rank: the others go on with it
        for place, start, saves in ((1, point, {second: f"{folder}/2"}), (2, second, {})):
            resumed = Life(accelerator, life, 99)
            accelerator.load_state(f"{folder}/{place}")
            found = resumed.run(point_after(start), length, saves)
            told = f"life {number} (again: loader_lives.py {number} 1) {life}, of {length} batches, saved at {' and '.join(map(str, [point, second][:place]))}:"
            wrong = [f"at {moment} {value}, expected {expected[moment]}" for moment, value in found.items()
                     if value is not None and value != expected[moment]]
            moments = {moment for moment in expected if points_order(moment, length) > points_order(start, length)} | {(point_after(start)[0], -1)}
            if set(found) != moments:
                wrong.append(f"it has {sorted(found)}, expected {sorted(moments)}")
            if wrong:
                failure = failure or f"{told} {wrong[0]}"
        return failure
    finally:
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            shutil.rmtree(folder)


def points_order(point, length):
    """-1 is what happens between the save before an epoch and the first batch."""
    epoch, taken = point
    return (epoch, length) if taken == "last" else (epoch, -0.5) if taken == -1 else (epoch, -0.75) if taken == 0 else (epoch, taken)


def main(first, count):
    accelerator = Accelerator(cpu=True)
    failures = [failure for failure in (check(accelerator, number) for number in range(first, first + count)) if failure]
    accelerator.free_memory()
    return failures


if __name__ == "__main__":
    found = main(int(sys.argv[1]), int(sys.argv[2]))
    print("\n".join(found) or f"{sys.argv[2]} lives of loaders agree")
    sys.exit(bool(found))
