//! Trains a model of tch, data-parallel: tch computes the forward and the gradients, libaccel averages them over the processes and
//! updates the weights in the memory of tch's tensors. Both use one LibTorch, that of tch, which must be 2.13:
//!
//!     export LIBTORCH=$(python3 -c 'import torch; print(torch.__path__[0])')
//!     cargo build --release && accel launch --num-processes 2 -- target/release/tch
//!
//! Two layers learn sin(3 x), as in ../own_gradients.rs, from the same numbers.
use accel::prelude::*;
use std::error::Error;
use tch::nn::{self as layers, Module as _};
use tch::{Kind, Tensor as TchTensor};

const HIDDEN: i64 = 24;
const BATCH: usize = 48;
const STEPS: usize = 600;

/// The same numbers in [-1, 1] in every process.
fn noise(number: usize) -> f32 {
    let mut bits = (number as u32).wrapping_mul(2654435769).wrapping_add(12345);
    bits = (bits ^ (bits >> 15)).wrapping_mul(2246822519);
    ((bits >> 8) & 0xffff) as f32 / 32767.5 - 1.0
}

/// A tensor in the memory of tch's, which the other owner of tch's keeps. Without a copy, with any strides.
fn shared(of: &TchTensor) -> accel::Result<Tensor> {
    if (of.kind(), of.device()) != (Kind::Float, tch::Device::Cpu) {
        let message = format!("a tensor of {:?} on {:?}: expected floats on the CPU", of.kind(), of.device());
        return Err(accel::Error::new(ErrorCode::Unsupported, message));
    }
    let owner = of.shallow_clone();
    // SAFETY: tch tells where its elements are. tch and libaccel use them by turns: the program computes between two steps, and waits
    // for each.
    unsafe { Tensor::from_raw_parts(of.data_ptr(), &of.size(), Some(&of.stride()), DType::Float32, Device::Cpu, owner) }
}

fn train(state: &State) -> Result<(), Box<dyn Error>> {
    let variables = layers::VarStore::new(tch::Device::Cpu);
    let root = variables.root();
    let hidden = layers::linear(&root / "hidden", 1, HIDDEN, Default::default());
    let output = layers::linear(&root / "output", HIDDEN, 1, Default::default());
    let named: Vec<(String, TchTensor)> = variables.variables().into_iter().collect();
    // The same beginning on any number of processes.
    for (name, scale, first) in
        [("hidden.weight", 3.0, 0), ("hidden.bias", 1.0, 100), ("output.weight", 0.2, 200), ("output.bias", 0.0, 0)]
    {
        let variable = &named.iter().find(|(known, _)| known == name).ok_or("a variable")?.1;
        let numbers: Vec<f32> = (0..variable.numel()).map(|i| scale * noise(first + i)).collect();
        tch::no_grad(|| variable.shallow_clone().copy_(&TchTensor::from_slice(&numbers).view_as(variable)));
    }

    let tensors = named.iter().map(|(name, variable)| Ok((name, shared(variable)?)));
    let mut parameters = state.register_parameters(tensors.collect::<accel::Result<Vec<_>>>()?, None)?;
    let adam = Optimizer::adam(&parameters.module()?, AdamOptions::new().lr(0.01))?;
    let optimizer = state.prepare_optimizer(&adam)?;

    let (processes, rank) = (state.num_processes() as usize, state.process_index() as usize);
    state.print(&format!("processes: {processes}"))?;
    for step in 0..STEPS {
        let samples = BATCH * rank / processes..BATCH * (rank + 1) / processes;
        let x: Vec<f32> = samples.map(|i| noise(step * BATCH + i + 1000)).collect();
        let x = TchTensor::from_slice(&x).view((-1, 1));
        let predicted = output.forward(&hidden.forward(&x).tanh());
        let loss = predicted.mse_loss(&(&x * 3.0).sin(), tch::Reduction::Mean);
        loss.backward();
        let gradients = named.iter().map(|(name, variable)| Ok((name, shared(&variable.grad())?)));
        let gradients = gradients.collect::<accel::Result<Vec<_>>>()?;
        parameters.step(&optimizer, gradients, ParametersStepOptions::new().max_grad_norm(1.0))?;
        named.iter().for_each(|(_, variable)| variable.shallow_clone().zero_grad());
        if (step + 1) % 100 == 0 {
            let mean = state.reduce(&Tensor::scalar(loss.double_value(&[]))?, Reduction::Mean, 1.0)?;
            state.print(&format!("loss of step {}: {:.5}", step + 1, mean.item()?))?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let state = StateOptions::new().cpu(true).build()?;
    train(&state)?;
    state.end_training()?;
    Ok(())
}
