//! Trains a small GPT on the bytes of a text:
//!
//!     accel launch --num-processes 2 -- train TEXT [STEPS]
//!
//! The processes share each batch, so the losses do not depend on their number.
use accel::*;

/// Every byte is a token.
const CONFIG: &str = r#"{"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 64, "n_layer": 2,
    "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}"#;
const CONTEXT: i64 = 32;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let text = arguments.next().unwrap_or_else(|| panic!("usage: train TEXT [STEPS]"));
    let steps: usize = arguments.next().map_or(60, |steps| steps.parse().expect("STEPS: expected a number"));

    let state = StateOptions::new().split_batches(true).build()?;
    state.set_seed(0, false, false)?;
    let text = Dataset::text(text, None, CONTEXT)?;
    let loader = DataLoader::new(&text, DataLoaderOptions::new().batch_size(8).shuffle(true).drop_last(true))?;
    let mut loader = state.prepare_data_loader(&loader, DataLoaderConfig::new())?;

    let gpt = Model::from_config(CONFIG)?;
    let model = state.prepare_model(&gpt, DdpOptions::new())?;
    let adamw = Optimizer::adamw(&gpt, AdamOptions::new().lr(3e-3))?;
    let optimizer = state.prepare_optimizer(&adamw)?;
    let cosine = Scheduler::cosine(&adamw, 5, steps as i64, 0.1)?;
    let scheduler = state.prepare_scheduler(&cosine)?;

    state.print(&format!("processes: {}", state.num_processes()))?;
    state.print(&format!("parameters: {}", gpt.num_parameters()?))?;
    state.print(&format!("windows: {}", text.len()))?;
    for step in 1..=steps {
        let batch = next_batch(&mut loader)?;
        let loss = state.accumulate(&[&model])?.run(|| {
            let mut loss = model.forward(batch.tensor_at(0)?)?.cross_entropy(batch.tensor_at(1)?)?;
            state.backward(&mut loss)?;
            state.clip_grad_norm(&gpt, 1.0, 2.0)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            loss.detach()
        })?;
        if step == 1 || step % 20 == 0 {
            let mean = state.reduce(&loss, Reduction::Mean, 1.0)?.item()?;
            state.print(&format!("loss of step {step}: {mean:.4}"))?;
        }
    }
    state.end_training()
}

/// The next batch, of the next epoch when this one is over.
fn next_batch(loader: &mut DataLoader) -> Result<Value> {
    let batch = loader.next().or_else(|| loader.next());
    batch.unwrap_or_else(|| Err(Error::new(ErrorCode::InvalidArgument, "the text is too short for a batch")))
}
