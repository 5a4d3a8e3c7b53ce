//! The exchange and the update of 25 million parameters: of Candle's variables, and by turns of tensors of libaccel.
use crate::shared;
use accel::prelude::*;
use candle_core as candle;
use candle_nn::VarMap;
use std::error::Error;
use std::time::Instant;

const MATRICES: usize = 24;
const SIDE: usize = 1024;
const ROUNDS: usize = 15;

/// Registered parameters with their optimizer and one set of gradients.
struct Side {
    parameters: Parameters,
    optimizer: Optimizer,
}

impl Side {
    fn new(state: &State, tensors: Vec<(String, Tensor)>) -> accel::Result<Self> {
        let parameters = state.register_parameters(tensors, None)?;
        let sgd = Optimizer::sgd(&parameters.module()?, SgdOptions::new().lr(1e-3))?;
        Ok(Side { parameters, optimizer: state.prepare_optimizer(&sgd)? })
    }

    fn milliseconds(&mut self, gradients: impl FnOnce() -> accel::Result<Vec<(String, Tensor)>>) -> accel::Result<f64> {
        let start = Instant::now();
        self.parameters.step(&self.optimizer, gradients()?, None)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

fn name(index: usize) -> String {
    format!("layers.{index}.weight")
}

pub fn run(state: &State) -> Result<(), Box<dyn Error>> {
    let (variables, shape) = (VarMap::new(), (SIDE, SIDE));
    let init = candle_nn::init::ZERO;
    let cpu = candle::Device::Cpu;
    let gradient_of = |_: usize| candle::Tensor::randn(0f32, 1.0, shape, &cpu);
    let computed = (0..MATRICES).map(gradient_of).collect::<candle::Result<Vec<_>>>()?;
    let mut theirs = Vec::new();
    for index in 0..MATRICES {
        let var = variables.get(shape, &name(index), init, candle::DType::F32, &cpu)?;
        theirs.push((name(index), shared::tensor(&var)?));
    }
    let mut theirs = Side::new(state, theirs)?;
    let own = |_: usize| Tensor::randn(&[SIDE as i64, SIDE as i64], DType::Float32, Device::Cpu);
    let gradients = (0..MATRICES).map(own).collect::<accel::Result<Vec<_>>>()?;
    let tensors = (0..MATRICES).map(|index| Ok((name(index), own(index)?))).collect::<accel::Result<Vec<_>>>()?;
    let mut ours = Side::new(state, tensors)?;

    let (mut of_candle, mut of_accel) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_candle.push(theirs.milliseconds(|| {
            let each = computed.iter().enumerate();
            each.map(|(index, gradient)| Ok((name(index), shared::tensor(gradient)?))).collect()
        })?);
        of_accel.push(ours.milliseconds(|| {
            let each = gradients.iter().enumerate();
            Ok(each.map(|(index, gradient)| (name(index), gradient.shallow_clone())).collect())
        })?);
    }
    let (of_candle, of_accel) = (median(of_candle), median(of_accel));
    state.print(&format!(
        "{} parameters, {} processes, median of {ROUNDS}: Candle {of_candle:.1} ms, libaccel {of_accel:.1} ms, {:.3}x",
        MATRICES * SIDE * SIDE,
        state.num_processes(),
        of_candle / of_accel
    ))?;
    Ok(())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
