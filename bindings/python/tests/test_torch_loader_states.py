# SPDX-License-Identifier: Apache-2.0
"""The state of a loader of torch, taken anywhere: what loads it sees what the run saw that went on."""

import pathlib

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

import loader_lives  # noqa: E402

HERE = pathlib.Path(__file__).parent


def test_lives():
    assert loader_lives.main(0, 60) == []


# Regression: a resumed loader that rank 0 reads for all filled up its last step with other rows; items drew other numbers.
def test_lives_of_two_ranks(ranks):
    assert ranks(f"""
        import sys
        sys.path.insert(0, {str(HERE)!r})
        import loader_lives
        print(loader_lives.main(0, 50))
    """) == ["[]\n"] * 2


def loader(**settings):
    torch.manual_seed(1)
    return DataLoader(list(range(8)), batch_size=2, shuffle=True, **settings)


def lists(batches):
    return [batch.tolist() for batch in batches]


# Regression: a state saved after the last batch of an epoch gave no epoch, or one in an order of no epoch.
@pytest.mark.parametrize("skips", [False, True])
def test_saved_after_the_last_batch(accelerator, tmp_path, skips):
    prepared = accelerator.prepare(loader())
    for number, _ in enumerate(prepared):
        if number == len(prepared) - 1:
            accelerator.save_state(tmp_path / "state")
    expected = [lists(prepared), lists(prepared)]
    accelerator.free_memory()
    prepared = accelerator.prepare(loader())
    accelerator.load_state(tmp_path / "state")
    assert prepared.iteration == 1
    first = accelerator.skip_first_batches(prepared, 0) if skips else prepared
    assert [lists(first), lists(prepared)] == expected and prepared.iteration == 3


# Regression: a loader of torch that was saved between two epochs drew the order of the first one again, with a generator of its
# own or on several ranks.
def test_saved_between_epochs_with_a_generator_of_its_own(accelerator):
    prepared = accelerator.prepare(loader(generator=torch.Generator().manual_seed(7)))
    lists(prepared)
    state = prepared.state_dict()
    expected = lists(prepared)
    other = accelerator.prepare(loader(generator=torch.Generator().manual_seed(7)))
    other.load_state_dict(state)
    assert lists(other) == expected


# Regression: a job that was resumed by skip_first_batches() and saved in the same epoch lost its place.
def test_saved_while_a_skipping_loader_goes_on(accelerator):
    """A job that is resumed twice in one epoch."""
    prepared = accelerator.prepare(loader(generator=torch.Generator().manual_seed(7)))
    whole = lists(prepared)
    following = lists(prepared)

    other = accelerator.prepare(loader(generator=torch.Generator().manual_seed(7)))
    batches = iter(other)
    next(batches)
    state = other.state_dict()
    other.load_state_dict(state)
    batches = iter(rest := accelerator.skip_first_batches(other, 1))
    assert next(batches).tolist() == whole[1]
    state = other.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 2)
    assert lists(batches) == whole[2:] and other.state_dict()["epoch"] == 1

    third = accelerator.prepare(loader(generator=torch.Generator().manual_seed(7)))
    third.load_state_dict(state)
    assert lists(accelerator.skip_first_batches(third, 2)) == whole[2:]
    assert lists(third) == lists(other) == following


# Regression: a resumed loader whose workers live on drew another order.
def test_workers_that_live_on_draw_no_seed(accelerator):
    def prepare():
        return accelerator.prepare(loader(num_workers=1, persistent_workers=True))

    prepared = prepare()
    lists(prepared)
    batches = iter(prepared)
    next(batches)
    state, numbers = prepared.state_dict(), torch.get_rng_state()
    expected = lists(batches), lists(prepared)
    other = prepare()
    other.load_state_dict(state)
    torch.set_rng_state(numbers)
    assert (lists(other), lists(other)) == expected
