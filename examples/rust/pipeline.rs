//! A model in stages: each process has some of its layers, and the rows of a batch pass from one to the next:
//!
//!     accel launch --num-processes 2 --parallelism-config-pp-size 2 -- pipeline
mod digits;

use accel::*;
use digits::{DIGITS, SEGMENTS};

const HIDDEN: i64 = 32;

fn main() -> Result<()> {
    let state = StateOptions::new().cpu(true).build()?;
    state.set_seed(0, DeviceSpecific::No, Deterministic::No)?;
    let network = nn::sequential(&[
        &nn::linear(SEGMENTS as i64, HIDDEN, Bias::With)?,
        &nn::activation("relu")?,
        &nn::linear(HIDDEN, HIDDEN, Bias::With)?,
        &nn::activation("relu")?,
        &nn::linear(HIDDEN, DIGITS as i64, Bias::With)?,
    ])?;
    let stages = PipelineOptions::new().micro_batches(4).split("parameters");
    let model = state.prepare_model(&network, PrepareModelOptions::new().pipeline(stages))?;
    let optimizer = state.prepare_optimizer(&Optimizer::adamw(&model, AdamOptions::new().lr(0.01))?)?;
    let options = DataLoaderOptions::new().batch_size(16).shuffle(true).seed(0);
    let mut loader = state.prepare_data_loader(&DataLoader::new(&digits::dataset(1, 320)?, options)?, None)?;

    state.print(&format!("processes: {}", state.num_processes()))?;
    state.print(&format!("parameters here: {}", model.num_parameters()?))?;
    for epoch in 1..=3 {
        let (mut total, mut batches) = (0.0, 0);
        for batch in &mut loader {
            let batch = batch?;
            // Forwards and backwards of the micro-batches.
            total += state.pipeline_step(&model, batch.at(0), batch.at(1), Some("cross_entropy"))?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            batches += 1;
        }
        state.print(&format!("epoch {epoch} loss: {:.4}", total / f64::from(batches)))?;
    }
    state.end_training()
}
