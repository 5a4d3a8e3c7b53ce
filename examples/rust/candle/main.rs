//! Trains a model of Candle, data-parallel: Candle computes the forward and the gradients, libaccel averages them over the
//! processes and updates the parameters.
//!
//!     cargo build --release && accel launch --num-processes 2 -- target/release/candle
//!
//! A layer of tanh learns sin(3 x), as in ../own_gradients.rs, from the same numbers.
use accel::{AdamOptions, Model, Optimizer, Parameters, ParametersOptions, Reduction, RequiresGrad, StateOptions};
use candle_core::{Device, Tensor, Var};
use std::error::Error;

const HIDDEN: usize = 24;
const BATCH: usize = 48;
const STEPS: usize = 600;
const NAMES: [&str; 4] = ["weight", "bias", "output", "output_bias"];

/// The same numbers in [-1, 1] in every process.
fn noise(number: usize) -> f32 {
    let mut bits = (number as u32).wrapping_mul(2654435769).wrapping_add(12345);
    bits = (bits ^ (bits >> 15)).wrapping_mul(2246822519);
    ((bits >> 8) & 0xffff) as f32 / 32767.5 - 1.0
}

/// The mean squared error.
fn loss_of(network: &[Var], x: &Tensor) -> candle_core::Result<Tensor> {
    let hidden = x.broadcast_mul(&network[0])?.broadcast_add(&network[1])?.tanh()?; // [rows, HIDDEN]
    let predicted = hidden.broadcast_mul(&network[2])?.sum_keepdim(1)?.broadcast_add(&network[3])?;
    let expected = (x * 3.0)?.sin()?;
    (predicted - expected)?.sqr()?.mean_all()
}

fn main() -> Result<(), Box<dyn Error>> {
    let state = StateOptions::new().cpu(true).build()?;
    let initial: [Vec<f32>; 4] = [
        (0..HIDDEN).map(|i| 3.0 * noise(i)).collect(),
        (0..HIDDEN).map(|i| noise(i + 100)).collect(),
        (0..HIDDEN).map(|i| 0.2 * noise(i + 200)).collect(),
        vec![0.0],
    ];
    let model = Model::container("Candle")?;
    let mut network = Vec::new();
    for (name, numbers) in NAMES.iter().zip(initial) {
        let shape = numbers.len();
        network.push(Var::from_slice(&numbers, shape, &Device::Cpu)?);
        model.add_parameter(name, accel::Tensor::from_vec(numbers, &[shape as i64])?, RequiresGrad::Yes)?;
    }
    let mut parameters = Parameters::new(&state, &model, ParametersOptions::new())?;
    let optimizer = state.prepare_optimizer(&Optimizer::adam(&model, AdamOptions::new().lr(0.01))?)?;

    let (processes, rank) = (state.num_processes() as usize, state.process_index() as usize);
    state.print(&format!("processes: {processes}"))?;
    for step in 0..STEPS {
        let samples = BATCH * rank / processes..BATCH * (rank + 1) / processes;
        let x: Vec<f32> = samples.map(|i| noise(step * BATCH + i + 1000)).collect();
        let x = Tensor::from_vec(x, (BATCH / processes, 1), &Device::Cpu)?;
        let loss = loss_of(&network, &x)?;
        let gradients = loss.backward()?;
        state.accumulate(&[])?.run(|| -> Result<(), Box<dyn Error>> {
            for index in (0..NAMES.len()).rev() {
                let gradient = gradients.get(&network[index]).ok_or("a parameter without a gradient")?;
                let gradient = gradient.to_vec1::<f32>()?;
                parameters.gradient(index)?.with_slice_mut(|place: &mut [f32]| place.copy_from_slice(&gradient))?;
                parameters.grad_ready(index, None)?;
            }
            parameters.synchronize()?;
            state.clip_grad_norm(&model, 1.0, 2.0)?;
            optimizer.step()?;
            Ok(())
        })?;
        for (name, var) in NAMES.iter().zip(&network) {
            let parameter = model.tensor(name)?;
            let copy =
                parameter.with_slice(|elements: &[f32]| Tensor::from_slice(elements, var.shape(), &Device::Cpu))?;
            var.set(&copy?)?;
        }
        if (step + 1) % 100 == 0 {
            let mean = state.reduce(&accel::Tensor::scalar(loss.to_scalar::<f32>()?)?, Reduction::Mean, 1.0)?;
            state.print(&format!("loss of step {}: {:.5}", step + 1, mean.item()?))?;
        }
    }
    state.end_training()?;
    Ok(())
}
