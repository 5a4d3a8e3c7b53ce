"""A network of JAX, whose gradients the library averages over the processes, and whose weights its optimizer updates.

    accel launch --num-processes 2 examples/python/jax_network.py

Arrays of JAX cannot be changed, so the weights are in arrays of NumPy, which a function that jax.jit() compiled takes as they are, and copies
at most once. The gradients are read where JAX has computed them.
"""

import jax
import jax.numpy as jnp
import numpy

import accel
from accel import Accelerator, optim

INPUTS, HIDDEN, OUTPUTS, BATCH, STEPS = 2, 24, 2, 48, 600


def new_network(random):
    def uniform(*shape):
        return random.uniform(-1, 1, shape).astype(numpy.float32)

    return [{"weight": 2 * uniform(HIDDEN, INPUTS), "bias": uniform(HIDDEN)}, {"weight": 0.2 * uniform(OUTPUTS, HIDDEN), "bias": 0 * uniform(OUTPUTS)}]


def mean_squared_error(network, x, goal):
    hidden = jnp.tanh(x @ network[0]["weight"].T + network[0]["bias"])
    return jnp.mean((hidden @ network[1]["weight"].T + network[1]["bias"] - goal) ** 2)


def main():
    accelerator = Accelerator(cpu=True)
    network = new_network(numpy.random.default_rng(0))
    parameters = accel.register_parameters(accelerator, network)
    optimizer = accelerator.prepare(optim.Adam(parameters.parameters(), lr=0.01))
    learn = jax.jit(jax.value_and_grad(mean_squared_error))

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
            goal = numpy.stack([numpy.sin(3 * x[:, 0]), x[:, 0] * x[:, 1]], 1)
            loss, gradients = jax.block_until_ready(learn(network, x, goal))  # JAX reads `network` until then
            parameters.step(optimizer, gradients, max_grad_norm=1.0)  # `network` has the new weights
            losses.append(float(loss))
        if step % 100 == 0:
            mean = accelerator.reduce(accel.tensor([float(numpy.mean(losses))]), "mean")
            accelerator.print(f"step {step}  loss {mean.item():.5f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
