//! Trains and saves in the middle, then begins again from what was saved, and repeats every loss bit for bit:
//!
//!     accel launch --num-processes 2 -- checkpoint FOLDER
mod digits;

use accel::*;
use digits::{DIGITS, SEGMENTS};
use std::path::Path;

const STEPS: usize = 6;
const SAVED_AFTER: usize = 3;
const HIDDEN: i64 = 32;

/// All that is prepared: a checkpoint holds it.
struct Run<'a> {
    state: &'a State,
    model: Model,
    optimizer: Optimizer,
    scheduler: Scheduler,
    loader: DataLoader,
}

impl<'a> Run<'a> {
    fn begin(state: &'a State, seed: i64) -> Result<Self> {
        state.set_seed(seed, DeviceSpecific::No, Deterministic::No)?;
        let model = nn::sequential(&[
            &nn::linear(SEGMENTS as i64, HIDDEN, Bias::With)?,
            &nn::activation("relu")?,
            &nn::dropout(0.1)?,
            &nn::linear(HIDDEN, DIGITS as i64, Bias::With)?,
        ])?;
        let adamw = Optimizer::adamw(&model, AdamOptions::new().lr(0.01))?;
        let cosine = Scheduler::cosine(&adamw, 2, 12, 0.0)?;
        let options = DataLoaderOptions::new().batch_size(8).shuffle(true).seed(0);
        let loader = DataLoader::new(&digits::dataset(1, 96)?, options)?;
        let (model, optimizer, scheduler, loader) = state.prepare((&model, &adamw, &cosine, &loader))?;
        Ok(Run { state, model, optimizer, scheduler, loader })
    }

    /// The mean of the processes' losses.
    fn step(&mut self) -> Result<f64> {
        let batch = self.loader.next().or_else(|| self.loader.next()).expect("an epoch has batches")?;
        let Run { state, model, optimizer, scheduler, .. } = self;
        let loss = state.accumulate(&[model])?.run(|| {
            let mut loss = model.forward(batch.tensor_at(0)?)?.cross_entropy(batch.tensor_at(1)?)?;
            state.backward(&mut loss)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            Ok::<_, Error>(loss)
        })?;
        state.reduce(&loss, Reduction::Mean, 1.0)?.item()
    }
}

fn main() -> Result<()> {
    let argument = std::env::args().nth(1).unwrap_or_else(|| panic!("usage: checkpoint FOLDER"));
    let folder = Path::new(&argument);
    let state = StateOptions::new().cpu(true).build()?;

    let mut losses = Vec::new();
    let mut run = Run::begin(&state, 0)?;
    for step in 1..=STEPS {
        losses.push(run.step()?);
        state.print(&format!("step {step} loss: {:.4}", losses[step - 1]))?;
        if step == SAVED_AFTER {
            state.save_state(folder, None)?;
        }
    }
    drop(run);
    state.free_memory()?;
    state.print(&format!("saved after step: {SAVED_AFTER}"))?;

    let mut run = Run::begin(&state, 1)?; // other weights, which are replaced
    state.load_state(folder, None)?;
    let mut equal = true;
    for step in SAVED_AFTER + 1..=STEPS {
        let loss = run.step()?;
        equal &= loss == losses[step - 1];
        state.print(&format!("resumed step {step} loss: {loss:.4}"))?;
    }
    state.print(&format!("equal: {equal}"))?;
    drop(run);
    assert!(equal, "a resumed run repeats every loss");
    state.end_training()
}
