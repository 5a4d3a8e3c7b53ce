# SPDX-License-Identifier: Apache-2.0
"""Parameters in arrays of NumPy, whose gradients the program computes."""

import importlib.util
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

import accel
from accel import Accelerator, optim

numpy = pytest.importorskip("numpy", reason="there is no NumPy")

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python"


def sgd(accelerator, parameters):
    return accelerator.prepare(optim.SGD(parameters.parameters(), lr=1.0))


def test_a_step_changes_the_arrays_in_place():
    accelerator = Accelerator(cpu=True)
    weight, bias = numpy.ones((2, 3), numpy.float32), numpy.zeros(3)
    parameters = accel.register_parameters(accelerator, {"layer": {"weight": weight}, "bias": bias})
    assert list(parameters) == ["layer.weight", "bias"] and len(parameters) == 2 and parameters["layer.weight"] is weight
    optimizer = sgd(accelerator, parameters)
    address = weight.ctypes.data
    norm = parameters.step(optimizer, {"bias": numpy.array([0.0, 3.0, 4.0]), "layer": {"weight": numpy.zeros((2, 3))}}, max_grad_norm=1)
    assert norm == pytest.approx(5)
    assert bias == pytest.approx([0, -0.6, -0.8], abs=1e-5)
    parameters.step(optimizer, {"layer.weight": accel.full([2, 3], 0.5)}, allow_missing=True)
    assert weight.tolist() == [[0.5] * 3] * 2 and weight.ctypes.data == address
    with pytest.raises(ValueError, match="gradients lacks 'bias'"):
        parameters.step(optimizer, {"layer.weight": weight})


def test_micro_batches_add_up():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    weights = [numpy.zeros(2, numpy.float32), numpy.zeros(1, numpy.float32)]
    parameters = accel.register_parameters(accelerator, weights)
    optimizer = sgd(accelerator, parameters)
    assert math.isnan(parameters.step(optimizer, [numpy.ones(2), numpy.ones(1)]))
    assert weights[0].tolist() == [0, 0]
    assert parameters.step(optimizer, [3 * numpy.ones(2), numpy.ones(1)]) == pytest.approx(3)
    assert weights[0].tolist() == [-2, -2] and weights[1].tolist() == [-1]


def test_optimizers_and_checkpoints_take_them(tmp_path):
    accelerator = Accelerator(cpu=True)
    weight = numpy.arange(4, dtype=numpy.float32)
    parameters = accel.register_parameters(accelerator, {"weight": weight})
    optimizer = accelerator.prepare(optim.AdamW(parameters.parameters(), lr=0.1))
    parameters.step(optimizer, {"weight": numpy.ones(4)})
    saved = weight.copy()
    accelerator.save_state(str(tmp_path / "state"))
    parameters.step(optimizer, {"weight": numpy.ones(4)})
    after = weight.copy()
    accelerator.load_state(str(tmp_path / "state"))
    assert (weight == saved).all()
    parameters.step(optimizer, {"weight": numpy.ones(4)})
    assert (weight == after).all()


def test_what_is_no_memory_of_the_program_is_refused():
    accelerator = Accelerator(cpu=True)
    fixed = numpy.zeros(3, numpy.float32)
    fixed.flags.writeable = False
    with pytest.raises(TypeError, match="parameter 'w' is a ndarray that cannot be changed in place"):
        accel.register_parameters(accelerator, {"w": fixed})
    with pytest.raises(ValueError, match="parameter 'w' is not contiguous"):
        accel.register_parameters(accelerator, {"w": numpy.zeros(6, numpy.float32)[::-1]})
    with pytest.raises(TypeError, match="parameter 'w' is a float; expected an array"):
        accel.register_parameters(accelerator, {"w": 1.5})
    with pytest.raises(TypeError, match="int64"):
        accel.register_parameters(accelerator, {"w": numpy.zeros(3, numpy.int64)})
    if importlib.util.find_spec("jax"):
        import jax

        with pytest.raises(TypeError, match="cannot be changed in place; expected memory of the program: numpy.array"):
            accel.register_parameters(accelerator, {"w": jax.numpy.zeros(3)})
        with pytest.raises(TypeError, match="cannot be changed in place"):
            accel.register_parameters(accelerator, {"w": jax.numpy.zeros(3, "bfloat16")})


def test_gradients_of_jax_are_read_where_they_are():
    jax = pytest.importorskip("jax", reason="there is no JAX")
    accelerator = Accelerator(cpu=True)
    weight = numpy.arange(4, dtype=numpy.float32)
    parameters = accel.register_parameters(accelerator, {"weight": weight})
    optimizer = sgd(accelerator, parameters)
    square = jax.jit(jax.grad(lambda network: (network["weight"] ** 2).sum() / 2))
    parameters.step(optimizer, jax.block_until_ready(square({"weight": weight})))
    assert weight.tolist() == [0, 0, 0, 0]


def test_ranks_average_and_shard(ranks):
    printed = ranks("""
        import numpy
        import accel
        from accel import Accelerator, FullyShardedDataParallelPlugin, optim
        accelerator = Accelerator(cpu=True)
        rank = accelerator.process_index
        for plugin in (None, FullyShardedDataParallelPlugin()):
            weight = numpy.full((3, 2), 1.0 + rank, numpy.float32)
            parameters = accel.register_parameters(accelerator, {"layer.weight": weight}, fsdp_plugin=plugin)
            optimizer = accelerator.prepare(optim.SGD(parameters.parameters(), lr=1.0))
            parameters.step(optimizer, {"layer.weight": numpy.full((3, 2), 2.0 * rank, numpy.float32)})
            print(weight.tolist())
        accelerator.end_training()
    """)
    assert printed == ["[[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]\n" * 2] * 2


def losses(example, processes):
    job = {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / f"{example}.py")]
    if processes > 1:
        command = [os.environ["ACCEL_PROGRAM"], "launch", "--num-processes", str(processes), "--", *command]
    done = subprocess.run(command, env={**os.environ, **job}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]


@pytest.mark.parametrize("example", ["numpy_network", pytest.param("jax_network", marks=pytest.mark.combinations)])
@pytest.mark.skipif("ACCEL_PROGRAM" not in os.environ, reason="ACCEL_PROGRAM does not name the launcher")
def test_the_examples_learn_the_same_on_any_number_of_processes(example):
    if example == "jax_network":
        pytest.importorskip("jax", reason="there is no JAX")
    alone, shared = losses(example, 1), losses(example, 2)
    assert len(alone) == 6 and alone[-1] < 0.2 * alone[0]
    assert shared == pytest.approx(alone, rel=0.02, abs=1e-5)


# Regression: a state dict with numbers as keys was reported as a defect of LibTorch.
def test_names_are_texts():
    accelerator = Accelerator(cpu=True)
    module = accel.nn.Linear(1, 1)
    with pytest.raises(TypeError, match="state_dict has a key of kind int; expected names"):
        accel.capi.accel_module_load_state_dict(module.handle, {0: accel.ones(1)}, 1)
    del accelerator
