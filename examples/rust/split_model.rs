//! A model of this program whose layers are split over the processes: each has half of the hidden units, and all work on the same
//! batches:
//!
//!     accel launch --num-processes 2 --parallelism-config-tp-size 2 -- split_model
mod digits;

use accel::*;
use digits::{DIGITS, SEGMENTS};

const HIDDEN: usize = 32;

/// Small numbers, the same in every language.
fn weights(mut random: u32, rows: usize, columns: usize) -> Result<Tensor> {
    let mut next = || {
        random = random.wrapping_mul(1664525).wrapping_add(1013904223);
        (random >> 24) as f32 / 512.0 - 0.25
    };
    let numbers: Vec<f32> = (0..rows * columns).map(|_| next()).collect();
    Tensor::from_vec(numbers, &[rows as i64, columns as i64])
}

struct FeedForward {
    group: State, // the processes that share the layers
}

impl Module for FeedForward {
    fn parameters(&self) -> Result<Vec<(&str, Tensor)>> {
        Ok(vec![
            ("up", weights(3, HIDDEN, SEGMENTS)?),
            ("down", weights(4, DIGITS, HIDDEN)?),
            ("bias", Tensor::zeros(&[DIGITS as i64], DType::Float32, Device::Cpu)?),
        ])
    }

    fn forward(&self, node: &Model, x: &Tensor) -> Result<Tensor> {
        // The units of this process.
        let hidden = self.group.parallel_copy(x)?.linear(&node.tensor("up")?, None)?.relu()?;
        let terms = hidden.linear(&node.tensor("down")?, None)?;
        self.group.parallel_reduce(&terms)? + &node.tensor("bias")?
    }
}

fn shape_of(tensor: &Tensor) -> String {
    tensor.shape().iter().map(i64::to_string).collect::<Vec<_>>().join(" x ")
}

fn main() -> Result<()> {
    let state = StateOptions::new().cpu(true).build()?;
    state.set_seed(0, DeviceSpecific::No, Deterministic::No)?;
    let network = Model::new(FeedForward { group: state.mesh()?.group("tensor")? })?;
    let splitting = TensorParallelOptions::new().plan("up colwise; down rowwise");
    let model = state.prepare_model(&network, PrepareModelOptions::new().tensor_parallel(splitting))?;
    let optimizer = state.prepare_optimizer(&Optimizer::adamw(&network, AdamOptions::new().lr(0.01))?)?;
    let options = DataLoaderOptions::new().batch_size(16).shuffle(true).seed(0);
    let mut loader = state.prepare_data_loader(&DataLoader::new(&digits::dataset(1, 320)?, options)?, None)?;

    state.print(&format!("processes: {}", state.num_processes()))?;
    state.print(&format!("up here: {}", shape_of(&network.tensor("up")?)))?;
    for epoch in 1..=3 {
        let (mut total, mut batches) = (0.0, 0);
        for batch in &mut loader {
            let batch = batch?;
            let mut loss = model.forward(batch.tensor_at(0)?)?.cross_entropy(batch.tensor_at(1)?)?;
            state.backward(&mut loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            total += loss.item()?;
            batches += 1;
        }
        state.print(&format!("epoch {epoch} loss: {:.4}", total / f64::from(batches)))?;
    }
    let saved = state.get_state_dict(&model)?; // whole, on the main process
    if let Some(up) = saved.get("up").and_then(Value::as_tensor) {
        state.print(&format!("up saved: {}", shape_of(up)))?;
    }
    state.end_training()
}
