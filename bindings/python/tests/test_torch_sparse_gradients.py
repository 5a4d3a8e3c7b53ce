# SPDX-License-Identifier: Apache-2.0
"""Embeddings with sparse gradients in several ranks."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

SCRIPT = """
    import contextlib, copy
    import torch
    import accel

    accelerator = accel.Accelerator(cpu=True, gradient_accumulation_steps={steps}, kwargs_handlers=[
        accel.DistributedDataParallelKwargs(find_unused_parameters={unused})])
    rank, count = accelerator.process_index, accelerator.num_processes

    class Net(torch.nn.Module):
        def __init__(self, dense):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4, sparse=True)
            self.bag = torch.nn.EmbeddingBag(10, 4, sparse=True)
            self.never = torch.nn.Embedding(3, 4, sparse=True)
            self.head = torch.nn.Linear(4, 2) if dense else torch.nn.Identity()

        def forward(self, ids):
            return {{"out": self.head(self.embed(ids) + (self.bag(ids[:, None]) if (ids > 4).all() else 0))}}

    def agree(model):
        for name, value in model.state_dict().items():
            values = accelerator.gather(value[None])
            assert all(torch.equal(values[0], other) for other in values), name

    def optimizers_of(net):
        sparse = [net.embed.weight, net.bag.weight, net.never.weight]
        dense = list(net.head.parameters())
        return [torch.optim.SparseAdam(sparse, lr=0.1), *([torch.optim.SGD(dense, lr=0.1)] if dense else [])]
"""


# Regression: sparse gradients of an embedding were an error on several ranks.
def test_indices_and_values_are_exchanged(ranks):
    for text in ranks(SCRIPT.format(steps=2, unused=False) + """
    for dense in (False, True):
        torch.manual_seed(rank)  # rank 0's weights are all ranks'
        net = Net(dense)
        prepared, *optimizers = accelerator.prepare(net, *optimizers_of(net))
        agree(net)
        alone = copy.deepcopy(net)
        others = optimizers_of(alone)
        ids = torch.tensor([[[0, 1], [1, 2], [5, 6], [7, 7]], [[1, 1], [3, 4], [8, 9], [0, 5]]])  # [ranks, batches, rows]
        for step in range(4):
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(ids[rank, step])["out"].square().mean())
                assert net.embed.weight.grad.is_sparse
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            for both in ids[:, step]:
                (alone(both)["out"].square().mean() / 2 / 2).backward()
            if step % 2:
                for optimizer in others:
                    optimizer.step()
                    optimizer.zero_grad()
                torch.testing.assert_close(dict(net.state_dict()), dict(alone.state_dict()))
                agree(net)
    print("equal")
    """):
        assert text == "equal\n"


def test_ranks_may_reach_other_parameters(ranks):
    for text in ranks(SCRIPT.format(steps=1, unused=True) + """
    net = Net(True)
    prepared = accelerator.prepare(net)
    accelerator.backward(prepared(torch.tensor([2, 6]) + 3 * rank)["out"].sum())  # the bag is one rank's
    assert net.never.weight.grad is None
    of_bag = net.bag.weight.grad.to_dense()
    assert of_bag[5].abs().sum() > 0 and of_bag[2].abs().sum() == 0
    assert torch.equal(*accelerator.gather(of_bag[None]))
    print("equal")
    """):
        assert text == "equal\n"


def test_gradients_stay_where_nothing_is_exchanged(ranks):
    for text in ranks(SCRIPT.format(steps=1, unused=False) + """
    net = Net(True)
    prepared = accelerator.prepare(net)

    def rows():
        return net.embed.weight.grad.coalesce().indices()[0].tolist()

    for scope in (lambda: accelerator.no_sync(prepared), prepared.no_sync if count > 1 else contextlib.nullcontext):
        with scope():
            loss = prepared(torch.tensor([rank]))["out"].sum()
            loss.backward(retain_graph=True)
        assert rows() == [rank]
        with accelerator.trigger_sync_in_backward(prepared):
            accelerator.backward(loss)
        assert rows() == [0, 1]
        net.zero_grad()
    accelerator.backward(prepared(torch.tensor([rank + 2]))["out"].sum())
    assert rows() == [2, 3]
    print("right")
    """):
        assert text == "right\n"


def test_sharded_models_name_the_parameter(ranks):
    for text in ranks("""
    import torch
    import accel
    accelerator = accel.Accelerator(cpu=True, fsdp_plugin=accel.FullyShardedDataParallelPlugin())
    try:
        accelerator.prepare(torch.nn.Sequential(torch.nn.Embedding(4, 4, sparse=True)))
    except ValueError as error:
        print(error)
    """):
        assert text == ("0.weight: embeddings with sparse=True have no gradients that could be sharded; expected sparse=False, or a strategy that does "
                        "not shard\n")


@pytest.mark.parametrize("has_loader", [True, False])
def test_uneven_inputs_are_refused(ranks, has_loader):
    for text in ranks(f"""
    import torch
    import accel
    accelerator = accel.Accelerator(cpu=True)
    model = torch.nn.Embedding(4, 4, sparse=True)
    model = accelerator.prepare(model)
    loader = accelerator.prepare(torch.utils.data.DataLoader(list(range(3)))) if {has_loader} else None
    try:
        with accelerator.join_uneven_inputs([model]):
            pass
    except ValueError as error:
        print(error)
    """):
        assert text == "'weight': sparse gradients cannot be exchanged with ranks that have no inputs any more; expected even inputs, or sparse=False\n"


def test_one_process_has_torchs_gradients(accelerator):
    model = torch.nn.Embedding(4, 2, sparse=True)
    other = copy.deepcopy(model)
    prepared = accelerator.prepare(model)
    assert prepared is model
    accelerator.backward(prepared(torch.tensor([1, 1])).sum())
    other(torch.tensor([1, 1])).sum().backward()
    assert torch.equal(model.weight.grad.to_dense(), other.weight.grad.to_dense())
