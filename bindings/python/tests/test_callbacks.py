# SPDX-License-Identifier: Apache-2.0
"""What a callback raises comes out of the outer call as it is, whatever kind of callback it is and whichever thread it ran on."""

import gc
import threading

import pytest

import accel
from accel import Accelerator, DataLoader, IterableDataset, capi, data, nn, optim
from accel.optim import lr_scheduler


class Mine(Exception):
    """An exception with more than a text."""

    def __init__(self, number):
        super().__init__("mine\nand more")
        self.number = number


def raises(*_, **__):
    raise Mine(7)


class Rows:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 11:
            raise Mine(7)
        return index


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(11)
        raise Mine(7)


class WithoutLength(Rows):
    def __len__(self):
        raise Mine(7)


class Order(data.Sampler):
    def __len__(self):
        return 20

    def order(self, epoch):
        raise Mine(7)


class Batches:
    def __iter__(self):
        raise Mine(7)


class Net(nn.Module):
    def forward(self, x):
        raise Mine(7)


class Update(optim.Optimizer):
    def update(self, *_):
        raise Mine(7)


def hooked(name):
    layer = nn.Linear(1, 1)
    getattr(layer, name)(raises)
    return layer


def stepped(optimizer_class):
    layer = nn.Linear(1, 1)
    optimizer = optimizer_class(layer.parameters(), lr=0.1)
    layer(accel.ones(1, 1)).sum().backward()
    return optimizer


CALLS = {
    "forward": lambda: Net()(accel.ones(1)),
    "hook before": lambda: hooked("register_forward_pre_hook")(accel.ones(1, 1)),
    "hook behind": lambda: hooked("register_forward_hook")(accel.ones(1, 1)),
    "update": lambda: stepped(Update).step(),
    "schedule": lambda: lr_scheduler.LambdaLR(optim.SGD(nn.Linear(1, 1)), raises),
    "schedules of groups": lambda: lr_scheduler.LambdaLR(optim.SGD(nn.Linear(1, 1)), [raises]),
    "item": lambda: list(DataLoader(Rows(), 2)),
    "item in a worker": lambda: list(DataLoader(Rows(), 2, num_workers=1)),
    "item in workers": lambda: list(DataLoader(Rows(), 2, num_workers=3)),
    "length": lambda: DataLoader(WithoutLength(), 2, shuffle=True),
    "stream": lambda: list(DataLoader(Stream(), 2)),
    "stream in a worker": lambda: list(DataLoader(Stream(), 2, num_workers=1)),
    "collate": lambda: list(DataLoader(list(range(4)), 2, collate_fn=raises)),
    "collate in a worker": lambda: list(DataLoader(list(range(4)), 2, collate_fn=raises, num_workers=2)),
    "order": lambda: list(DataLoader(Rows(), 2, sampler=Order())),
    "batches": lambda: list(DataLoader(Rows(), batch_sampler=Batches())),
    "tree": lambda: accel.utils.recursively_apply(raises, [accel.ones(1)]),
}


# Regression: an exception of a dataset in a worker came out as another exception.
@pytest.mark.parametrize("kind", CALLS)
def test_of_every_kind(kind):
    with pytest.raises(Mine) as caught:
        CALLS[kind]()
    assert caught.value.number == 7 and caught.traceback[-1].path.name == "test_callbacks.py"


# Regression: the function of a schedule raised, the rate became 0, and training went on.
def test_schedules_go_on_afterwards():
    """The rate of a step whose function raises is the one before."""
    wrong = [False]

    def factor(step):
        if wrong[0]:
            raise KeyError("mine")
        return 1 / (1 + step)

    scheduler = lr_scheduler.LambdaLR(optim.SGD(nn.Linear(1, 1), lr=1.0), factor)
    scheduler.step()
    wrong[0] = True
    for call in (scheduler.step, lambda: scheduler.curve(3)):
        with pytest.raises(KeyError, match="mine"):
            call()
    assert scheduler.get_last_lr() == [0.5] and scheduler.last_epoch == 1
    wrong[0] = False
    scheduler.step()
    assert scheduler.get_last_lr() == [1 / 3]


# Regression: an exception of a registered object came out as a defect of the library.
def test_in_checkpoints(tmp_path):
    class Counter:
        wrong = None

        def state_dict(self):
            if self.wrong == "save":
                raise Mine(7)
            return {"steps": 1}

        def load_state_dict(self, state):
            if self.wrong == "load":
                raise Mine(7)

    accelerator, counter = Accelerator(cpu=True), Counter()
    accelerator.register_for_checkpointing(counter)
    accelerator.save_state(tmp_path / "kept")
    for wrong, call in (("save", accelerator.save_state), ("load", accelerator.load_state)):
        counter.wrong = wrong
        with pytest.raises(Mine):
            call(tmp_path / "kept")


def test_sizes_of_batches():
    def work(batch_size):
        raise MemoryError("too much")

    with pytest.raises(Mine):
        accel.find_executable_batch_size(work, starting_batch_size=8, reduce_batch_size_fn=raises)()


def test_a_later_error_is_its_own():
    with pytest.raises(Mine):
        Net()(accel.ones(1))
    with pytest.raises(accel.errors.NotFoundError):
        capi.accel_op_find("aten::no_such_operator", "")


def test_many_threads_get_their_own():
    wrong = []

    def work(number):
        class Own(nn.Module):
            def forward(self, x):
                raise Mine(number)

        model = Own()
        for _ in range(50):
            try:
                model(accel.ones(1))
            except Mine as error:
                if error.number != number:
                    wrong.append((number, error.number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_nobody_asked_for_is_not_kept_for_ever():
    """Exceptions of batches that were read ahead and never taken."""
    before = capi.accel_debug_live_objects()
    for _ in range(40):
        iterator = iter(DataLoader(Rows(), 2, num_workers=2))
        next(iterator)
        del iterator
    gc.collect()
    assert capi.accel_debug_live_objects() - before < 64
