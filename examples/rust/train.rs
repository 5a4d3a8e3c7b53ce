//! Trains a small network on the digits of a clock, on as many processes as the launcher starts:
//!
//!     accel launch --num-processes 2 -- train
mod digits;

use accel::*;
use digits::{DIGITS, SEGMENTS};

const EPOCHS: usize = 3;
const BATCH: i64 = 16;
const HIDDEN: i64 = 32;

/// One pass over the data: the mean of the loss, over the processes too.
fn train_epoch(state: &State, model: &Model, optimizer: &Optimizer, loader: &mut DataLoader) -> Result<f64> {
    let (mut total, mut batches) = (0.0, 0);
    for batch in loader {
        let batch = batch?;
        total += state.accumulate(&[model])?.run(|| {
            let mut loss = model.forward(batch.tensor_at(0)?)?.cross_entropy(batch.tensor_at(1)?)?;
            state.backward(&mut loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            loss.item()
        })?;
        batches += 1;
    }
    let mean = Tensor::scalar(total / f64::from(batches))?.to_device(state.device())?;
    state.reduce(&mean, Reduction::Mean, 1.0)?.item()
}

/// The test samples, each of which comes to one process, and those of them that are recognised.
fn evaluate(state: &State, model: &Model, loader: &mut DataLoader) -> Result<(usize, usize)> {
    model.train(false)?;
    let (mut samples, mut correct) = (0, 0);
    no_grad()?.run(|| {
        for batch in loader {
            let batch = batch?;
            let predictions = model.forward(batch.tensor_at(0)?)?.argmax(Some(1), KeepDim::No)?;
            // Without what was repeated to fill the last batch.
            let mine = Value::list([predictions, batch.tensor_at(1)?.shallow_clone()])?;
            let all = state.gather_for_metrics(&mine)?;
            let (predictions, labels) = (all.tensor_at(0)?.to_vec::<i64>()?, all.tensor_at(1)?.to_vec::<i64>()?);
            samples += labels.len();
            correct += predictions.iter().zip(&labels).filter(|(prediction, label)| prediction == label).count();
        }
        Ok((samples, correct))
    })
}

fn main() -> Result<()> {
    let state = StateOptions::new().cpu(true).gradient_accumulation_steps(2).build()?;
    state.set_seed(0, DeviceSpecific::No, Deterministic::No)?;
    let model = nn::sequential(&[
        &nn::linear(SEGMENTS as i64, HIDDEN, Bias::With)?,
        &nn::activation("relu")?,
        &nn::linear(HIDDEN, DIGITS as i64, Bias::With)?,
    ])?;
    let adamw = Optimizer::adamw(&model, AdamOptions::new().lr(0.01))?;
    let options = DataLoaderOptions::new().batch_size(BATCH);
    let train_loader = DataLoader::new(&digits::dataset(1, 1000)?, options.shuffle(true).seed(0))?;
    let test_loader = DataLoader::new(&digits::dataset(2, 203)?, options)?;
    let (model, optimizer, mut train_loader, mut test_loader) =
        state.prepare((&model, &adamw, &train_loader, &test_loader))?;

    state.print(&format!("processes: {}", state.num_processes()))?;
    state.print(&format!("parameters: {}", model.num_parameters()?))?;
    for epoch in 1..=EPOCHS {
        let loss = train_epoch(&state, &model, &optimizer, &mut train_loader)?;
        state.print(&format!("epoch {epoch} loss: {loss:.4}"))?;
    }
    let (samples, correct) = evaluate(&state, &model, &mut test_loader)?;
    state.print(&format!("test samples: {samples}"))?;
    state.print(&format!("accuracy: {:.4}", correct as f64 / samples as f64))?;
    state.end_training()
}
