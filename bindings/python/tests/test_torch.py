# SPDX-License-Identifier: Apache-2.0
"""With torch in the same process: tensors pass in both directions without a copy, whichever was imported first."""

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="there is no torch")

EXCHANGE = """
import torch
mine, theirs = accel.ones(2, 3), torch.arange(4.0)
lent = torch.from_dlpack(mine)
assert lent.data_ptr() == mine.data_ptr()
lent[0, 0] = 5
assert mine[0, 0].item() == 5
assert accel.as_tensor(theirs).data_ptr() == accel.from_dlpack(theirs).data_ptr() == theirs.data_ptr()
assert (accel.ones(4) + theirs).tolist() == [1, 2, 3, 4]
assert accel.from_dlpack(torch.ones(2, dtype=torch.bfloat16)).dtype == "bfloat16"
"""


@pytest.mark.parametrize("first", ["import torch, accel", "import accel; accel.ones(1)"])
def test_exchange(first):
    done = subprocess.run([sys.executable, "-c", first + EXCHANGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_model_of_torch_hands_its_gradients_over(ranks):
    printed = ranks("""
        import torch
        import accel
        from accel import Accelerator, OwnGradients, nn, optim
        accelerator = Accelerator(cpu=True)
        torch.manual_seed(accelerator.process_index)  # rank 0's weights count
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        parameters, holder = list(net.parameters()), nn.Module()
        for place, parameter in enumerate(parameters):
            holder.register_parameter(f"part_{place}", nn.Parameter(accel.from_dlpack(parameter.detach())))
            assert getattr(holder, f"part_{place}").data_ptr() == parameter.data_ptr()
        gradients = OwnGradients(holder)
        optimizer = accelerator.prepare(optim.SGD(holder.parameters(), lr=0.1))
        torch.manual_seed(5 + accelerator.process_index)
        losses = []
        for step in range(30):
            x = torch.randn(8, 4)
            loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
            with accelerator.accumulate():
                computed = torch.autograd.grad(loss, parameters)
                for place in reversed(range(len(gradients))):
                    gradients.ready(place, computed[place])
                gradients.synchronize()
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(accel.tensor(loss.item()), "mean").item())
        sums = accelerator.gather(accel.tensor([parameters[0].sum().item()])).tolist()
        print(losses[-1] < losses[0] / 2, sums[0] == sums[1])
        """)
    assert printed == ["True True\n"] * 2


def test_collectives_return_the_kind_that_they_were_given(ranks):
    printed = ranks("""
        import torch
        from accel import Accelerator, collectives, utils
        accelerator = Accelerator(cpu=True)
        rank = accelerator.process_index
        own = torch.tensor([1.0, 2.0]) * (rank + 1)
        results = {
            "gather": accelerator.gather(own), "reduce": accelerator.reduce(own, "sum"), "broadcast": utils.broadcast([own.clone()])[0],
            "pad": accelerator.pad_across_processes(torch.ones(1 + rank)), "gather_uneven": utils.gather_uneven(torch.ones(1 + rank)),
            "all_reduce": collectives.all_reduce(own.clone()), "all_gather": collectives.all_gather(own),
            "reduce_scatter": collectives.reduce_scatter(torch.ones(2, 2)), "all_to_all": collectives.all_to_all(torch.ones(2) * rank),
            "scatter": collectives.scatter(torch.zeros(2), torch.eye(2) if rank == 0 else None),
            "object": utils.gather_object([{"tensor": own}])[1]["tensor"], "copy": utils.copy_tensor_to_devices(own if rank == 1 else None),
            "started": utils.gather(own, async_op=True).wait(),
        }
        wrong = [name for name, result in results.items() if type(result) is not torch.Tensor]
        received = collectives.recv(torch.zeros(2), 0) if rank == 1 else collectives.send(own, 1)
        print(wrong, results["all_reduce"].tolist(), results["all_to_all"].tolist(), received if rank == 0 else received.tolist())
        """)
    assert printed == ["[] [3.0, 6.0] [0.0, 1.0] None\n", "[] [3.0, 6.0] [0.0, 1.0] [1.0, 2.0]\n"]


def test_wrong_losses():
    import torch

    import accel

    accelerator = accel.Accelerator(cpu=True)
    with pytest.raises(TypeError, match="the loss is a float; expected a tensor"):
        accelerator.backward(3.0)
    with pytest.raises(accel.Error, match="no gradient history"):
        accelerator.backward(torch.ones(1))


def test_ctrl_c_in_a_backward():
    import os
    import signal

    import torch

    import accel

    class Interrupted(torch.autograd.Function):
        @staticmethod
        def forward(_context, x):
            return x.clone()

        @staticmethod
        def backward(_context, gradient):
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                pass

    accelerator = accel.Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    with pytest.raises(KeyboardInterrupt):
        accelerator.backward(Interrupted.apply(model(torch.ones(1, 2))).sum())
    accelerator.backward(model(torch.ones(1, 2)).sum())
    assert model.weight.grad.tolist() == [[1, 1]]
    accelerator.free_memory()


def test_deterministic_algorithms_and_two_accelerators():
    import torch

    import accel

    torch.use_deterministic_algorithms(True)
    try:
        first, second = accel.Accelerator(cpu=True), accel.Accelerator(cpu=True)
        model = first.prepare(torch.nn.Linear(2, 1, bias=False))
        optimizer = second.prepare(torch.optim.SGD(model.parameters(), lr=0.5))
        with torch.no_grad():
            model.weight.zero_()
        first.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        assert model.weight.tolist() == [[-0.5, -0.5]]
    finally:
        torch.use_deterministic_algorithms(False)
        first.free_memory()
        second.free_memory()


def test_torch_of_another_version():
    script = ("import torch, accel; torch.__version__ = '2.12.1+cpu'\n"
              "try:\n    accel.Accelerator(cpu=True).prepare(torch.nn.Linear(1, 1))\nexcept ImportError as error:\n    print(error)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "torch 2.12.1+cpu is loaded, and libaccel was built for 2." in done.stdout and "pip install torch==2." in done.stdout, done.stderr
