"""A network of NumPy, trained in place: its gradients are computed by hand, the library averages them and updates the arrays.

    accel launch --num-processes 2 examples/python/numpy_network.py

Two layers learn (sin(3 x), x y) from (x, y). The processes share each batch, so the losses do not depend on their number.
"""

import numpy

import accel
from accel import Accelerator, optim

INPUTS, HIDDEN, OUTPUTS, BATCH, STEPS = 2, 24, 2, 48, 600


def new_network(random):
    return {"hidden": {"weight": 2 * random.uniform(-1, 1, (HIDDEN, INPUTS)).astype(numpy.float32),
                       "bias": random.uniform(-1, 1, HIDDEN).astype(numpy.float32)},
            "output": {"weight": 0.2 * random.uniform(-1, 1, (OUTPUTS, HIDDEN)).astype(numpy.float32),
                       "bias": numpy.zeros(OUTPUTS, numpy.float32)}}


def learn(network, x, goal):
    """The mean squared error, and its gradient in the structure of the network."""
    hidden = numpy.tanh(x @ network["hidden"]["weight"].T + network["hidden"]["bias"])
    difference = hidden @ network["output"]["weight"].T + network["output"]["bias"] - goal
    down = 2 * difference / difference.size
    inside = (down @ network["output"]["weight"]) * (1 - hidden**2)
    return (difference**2).mean(), {"hidden": {"weight": inside.T @ x, "bias": inside.sum(0)},
                                    "output": {"weight": down.T @ hidden, "bias": down.sum(0)}}


def main():
    accelerator = Accelerator(cpu=True)
    network = new_network(numpy.random.default_rng(0))
    parameters = accel.register_parameters(accelerator, network)
    optimizer = accelerator.prepare(optim.Adam(parameters.parameters(), lr=0.01))

    # A batch is shared by the processes, and by the micro-batches that accumulate.
    micro_batches = accelerator.gradient_accumulation_steps
    parts = accelerator.num_processes * micro_batches
    random = numpy.random.default_rng(1)
    for step in range(1, STEPS + 1):
        samples = random.uniform(-1, 1, (BATCH, INPUTS)).astype(numpy.float32)
        losses = []
        for micro in range(micro_batches):
            mine = micro * accelerator.num_processes + accelerator.process_index
            x = samples[BATCH * mine // parts:BATCH * (mine + 1) // parts]
            loss, gradients = learn(network, x, numpy.stack([numpy.sin(3 * x[:, 0]), x[:, 0] * x[:, 1]], 1))
            parameters.step(optimizer, gradients, max_grad_norm=1.0)  # `network` has the new weights
            losses.append(loss)
        if step % 100 == 0:
            mean = accelerator.reduce(accel.tensor([float(numpy.mean(losses))]), "mean")
            accelerator.print(f"step {step}  loss {mean.item():.5f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
