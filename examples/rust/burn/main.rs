//! Trains a model of Burn on its backend of ndarray, data-parallel: Burn computes the forward and the gradients, libaccel averages them
//! over the processes and updates the weights in the memory of the arrays.
//!
//!     cargo build --release && accel launch --num-processes 2 -- target/release/burn
//!
//! Two layers learn sin(3 x), as in ../own_gradients.rs, from the same numbers.
use accel::prelude::*;
use burn::backend::{Autodiff, NdArray};
use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Tensor as BurnTensor, TensorData};
use std::error::Error;

mod shared;

type Backend = Autodiff<NdArray>;

const HIDDEN: usize = 24;
const BATCH: usize = 48;
const STEPS: usize = 600;

/// The same numbers in [-1, 1] in every process.
fn noise(number: usize) -> f32 {
    let mut bits = (number as u32).wrapping_mul(2654435769).wrapping_add(12345);
    bits = (bits ^ (bits >> 15)).wrapping_mul(2246822519);
    ((bits >> 8) & 0xffff) as f32 / 32767.5 - 1.0
}

#[derive(Module, Debug)]
struct Network<B: burn::tensor::backend::Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

/// The same beginning on any number of processes.
fn matrix(rows: usize, columns: usize, scale: f32, first: usize) -> Param<BurnTensor<Backend, 2>> {
    let numbers = (0..rows * columns).map(|i| scale * noise(first + i)).collect();
    Param::from_data(TensorData::new(numbers, [rows, columns]), &Default::default())
}

fn vector(size: usize, scale: f32, first: usize) -> Param<BurnTensor<Backend, 1>> {
    let numbers = (0..size).map(|i| scale * noise(first + i)).collect();
    Param::from_data(TensorData::new(numbers, [size]), &Default::default())
}

impl Network<Backend> {
    fn new() -> Self {
        let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).init(&Default::default());
        let (mut hidden, mut output) = (layer(1, HIDDEN), layer(HIDDEN, 1));
        (hidden.weight, hidden.bias) = (matrix(1, HIDDEN, 3.0, 0), Some(vector(HIDDEN, 1.0, 100)));
        (output.weight, output.bias) = (matrix(HIDDEN, 1, 0.2, 200), Some(vector(1, 0.0, 0)));
        Network { hidden, output }
    }

    /// The mean squared error.
    fn loss(&self, x: BurnTensor<Backend, 2>) -> BurnTensor<Backend, 1> {
        let predicted = self.output.forward(self.hidden.forward(x.clone()).tanh());
        (predicted - (x * 3.0).sin()).powi_scalar(2).mean()
    }
}

fn train(state: &State) -> Result<(), Box<dyn Error>> {
    let network = Network::new();
    let mut parameters = state.register_parameters(shared::parameters(&network)?, None)?;
    let adam = Optimizer::adam(&parameters.module()?, AdamOptions::new().lr(0.01))?;
    let optimizer = state.prepare_optimizer(&adam)?;

    let (processes, rank) = (state.num_processes() as usize, state.process_index() as usize);
    state.print(&format!("processes: {processes}"))?;
    for step in 0..STEPS {
        let samples = BATCH * rank / processes..BATCH * (rank + 1) / processes;
        let x: Vec<f32> = samples.map(|i| noise(step * BATCH + i + 1000)).collect();
        let shape = [x.len(), 1];
        let loss = network.loss(BurnTensor::from_data(TensorData::new(x, shape), &Default::default()));
        let gradients = shared::gradients(&network, &loss.backward())?;
        parameters.step(&optimizer, gradients, ParametersStepOptions::new().max_grad_norm(1.0))?;
        if (step + 1) % 100 == 0 {
            let mean = state.reduce(&Tensor::scalar(loss.into_scalar())?, Reduction::Mean, 1.0)?;
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
