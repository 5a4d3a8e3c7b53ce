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
