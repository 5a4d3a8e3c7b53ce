//! Trains a model of Candle, data-parallel: Candle computes the forward and the gradients, libaccel averages them over the
//! processes and updates the weights in Candle's own memory.
//!
//!     cargo build --release && accel launch --num-processes 2 -- target/release/candle
//!
//! Two layers learn sin(3 x), as in ../own_gradients.rs, from the same numbers. With the argument `measure` it compares the exchange
//! and the update of 25 million parameters of Candle with the same over tensors of libaccel.
use accel::prelude::*;
use candle_core as candle;
use candle_nn::{Linear, Module as _, VarBuilder, VarMap};
use std::error::Error;

mod measure;
mod shared;

const HIDDEN: usize = 24;
const BATCH: usize = 48;
const STEPS: usize = 600;

/// The same numbers in [-1, 1] in every process.
fn noise(number: usize) -> f32 {
    let mut bits = (number as u32).wrapping_mul(2654435769).wrapping_add(12345);
    bits = (bits ^ (bits >> 15)).wrapping_mul(2246822519);
    ((bits >> 8) & 0xffff) as f32 / 32767.5 - 1.0
}

struct Network {
    hidden: Linear,
    output: Linear,
}

impl Network {
    fn new(variables: VarBuilder<'_>) -> candle::Result<Self> {
        let hidden = candle_nn::linear(1, HIDDEN, variables.pp("hidden"))?;
        Ok(Network { hidden, output: candle_nn::linear(HIDDEN, 1, variables.pp("output"))? })
    }

    /// The mean squared error.
    fn loss(&self, x: &candle::Tensor) -> candle::Result<candle::Tensor> {
        let predicted = self.output.forward(&self.hidden.forward(x)?.tanh()?)?;
        candle_nn::loss::mse(&predicted, &(x * 3.0)?.sin()?)
    }
}

/// The same beginning on any number of processes, whatever Candle has drawn.
fn initialize(variables: &VarMap) -> candle::Result<()> {
    let data = variables.data().lock().expect("nobody panics with it");
    for (name, scale, first) in
        [("hidden.weight", 3.0, 0), ("hidden.bias", 1.0, 100), ("output.weight", 0.2, 200), ("output.bias", 0.0, 0)]
    {
        let numbers = (0..data[name].elem_count()).map(|i| scale * noise(first + i)).collect::<Vec<f32>>();
        data[name].set(&candle::Tensor::from_vec(numbers, data[name].shape(), &candle::Device::Cpu)?)?;
    }
    Ok(())
}

fn train(state: &State) -> Result<(), Box<dyn Error>> {
    let variables = VarMap::new();
    let network = Network::new(VarBuilder::from_varmap(&variables, candle::DType::F32, &candle::Device::Cpu))?;
    initialize(&variables)?;

    // By name: VarMap has them in an order of its own.
    let named: Vec<_> = {
        let data = variables.data().lock().expect("nobody panics with it");
        data.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
    };
    let tensors = named.iter().map(|(name, var)| Ok((name, shared::tensor(var)?)));
    let mut parameters = state.register_parameters(tensors.collect::<accel::Result<Vec<_>>>()?, None)?;
    let adam = Optimizer::adam(&parameters.module()?, AdamOptions::new().lr(0.01))?;
    let optimizer = state.prepare_optimizer(&adam)?;

    let (processes, rank) = (state.num_processes() as usize, state.process_index() as usize);
    state.print(&format!("processes: {processes}"))?;
    for step in 0..STEPS {
        let samples = BATCH * rank / processes..BATCH * (rank + 1) / processes;
        let x: Vec<f32> = samples.map(|i| noise(step * BATCH + i + 1000)).collect();
        let rows = x.len();
        let loss = network.loss(&candle::Tensor::from_vec(x, (rows, 1), &candle::Device::Cpu)?)?;
        let computed = loss.backward()?;
        let gradients = named.iter().filter_map(|(name, var)| Some((name, shared::tensor(computed.get(var)?))));
        let gradients = gradients.map(|(name, gradient)| Ok((name, gradient?))).collect::<accel::Result<Vec<_>>>()?;
        parameters.step(&optimizer, gradients, ParametersStepOptions::new().max_grad_norm(1.0))?;
        if (step + 1) % 100 == 0 {
            let mean = state.reduce(&Tensor::scalar(loss.to_scalar::<f32>()?)?, Reduction::Mean, 1.0)?;
            state.print(&format!("loss of step {}: {:.5}", step + 1, mean.item()?))?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let state = StateOptions::new().cpu(true).build()?;
    match std::env::args().nth(1).as_deref() {
        None => train(&state)?,
        Some("measure") => measure::run(&state)?,
        Some(other) => return Err(format!("argument {other:?}: expected measure, or none").into()),
    }
    state.end_training()?;
    Ok(())
}
