//! A module whose forward this program computes. LibTorch's autograd goes through it, and data parallelism, optimizers and
//! checkpoints take it as any other:
//!
//!     accel launch --num-processes 2 -- custom_module
use accel::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const POINTS: usize = 16;
const STEPS: usize = 100;

/// `x * weight + bias`, which counts its calls.
struct Affine {
    calls: Arc<AtomicUsize>,
}

impl Module for Affine {
    fn parameters(&self) -> Result<Vec<(&str, Tensor)>> {
        let zero = || Tensor::zeros(&[1], DType::Float32, Device::Cpu);
        Ok(vec![("weight", zero()?), ("bias", zero()?)])
    }

    fn call(&self, node: &Model, inputs: &[Value]) -> Result<Value> {
        if inputs.len() != 1 {
            return Err(Error::new(ErrorCode::User, format!("Affine takes 1 input, got {}", inputs.len())));
        }
        Ok(self.forward(node, inputs[0].as_tensor().expect("the program gives tensors"))?.into())
    }

    fn forward(&self, node: &Model, x: &Tensor) -> Result<Tensor> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (x * &node.tensor("weight")?)? + &node.tensor("bias")?
    }
}

fn main() -> Result<()> {
    let state = StateOptions::new().cpu(true).build()?;
    state.set_seed(0, DeviceSpecific::No, Deterministic::No)?;
    let calls = Arc::new(AtomicUsize::new(0));
    let module = Model::new(Affine { calls: Arc::clone(&calls) })?;
    let model = state.prepare_model(&module, PrepareModelOptions::new())?;
    let optimizer = state.prepare_optimizer(&Optimizer::sgd(&module, SgdOptions::new().lr(0.5))?)?;

    // y = 3 x - 1
    let mine = (state.process_index() as usize..POINTS).step_by(state.num_processes() as usize);
    let x: Vec<f32> = mine.map(|i| -1.0 + i as f32 / 8.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
    let shape = [x.len() as i64];
    let on_device = |data| Tensor::from_vec(data, &shape)?.to_device(state.device());
    let (x, y) = (on_device(x)?, on_device(y)?);

    state.print(&format!("kind: {}", module.kind()))?;
    for step in 1..=STEPS {
        let mut loss = model.forward(&x)?.mse_loss(&y)?;
        state.backward(&mut loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        if step == 1 || step == STEPS {
            let mean = state.reduce(&loss, Reduction::Mean, 1.0)?.item()?;
            state.print(&format!("step {step} loss: {mean:.4}"))?;
        }
    }
    state.print(&format!("weight: {:.4}", module.tensor("weight")?.item()?))?;
    state.print(&format!("bias: {:.4}", module.tensor("bias")?.item()?))?;
    state.print(&format!("forward calls: {}", calls.load(Ordering::Relaxed)))?;

    // What goes wrong inside of the forward comes out of the call around it.
    if let Err(error) = model.call(&[(&x).into(), (&x).into()]) {
        state.print(&format!("error: {}", error.message()))?;
    }
    state.end_training()
}
