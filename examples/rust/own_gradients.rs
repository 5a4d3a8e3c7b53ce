//! Trains a network of pure Rust, data-parallel: the crate `ndarray` computes the forward and the gradients, LibTorch's
//! autograd has no part in it. So does a framework with an autograd of its own.
//!
//!     accel launch --num-processes 2 -- own_gradients
//!
//! The parameters of the network are the memory of the library, and so are the gradients: nothing is copied. A layer of
//! tanh learns sin(3 x). The processes share each batch, so the losses do not depend on their number.
use accel::*;
use ndarray::{Array1, ArrayViewD, Axis, Ix1};

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

/// The network: four tensors of one dimension.
struct Network {
    tensors: Vec<Tensor>,
}

impl Network {
    /// The mean squared error of some inputs, of which the batch has `count`, and its gradients.
    fn learn(&self, x: &Array1<f32>, count: f32) -> Result<(f32, [Array1<f32>; 4])> {
        let tensors: Vec<&Tensor> = self.tensors.iter().collect();
        Tensor::with_arrays(&tensors, |views| Self::learn_with(views, x, count))
    }

    fn learn_with(views: &[ArrayViewD<'_, f32>], x: &Array1<f32>, count: f32) -> (f32, [Array1<f32>; 4]) {
        let array = |index: usize| views[index].view().into_dimensionality::<Ix1>().expect("one dimension");
        let (weight, bias, output) = (array(0), array(1), array(2));
        let x = x.view().insert_axis(Axis(1));
        let hidden = (&x * &weight + bias).mapv(f32::tanh); // [rows, HIDDEN]
        let predicted = hidden.dot(&output) + array(3)[0];
        let difference = predicted - x.index_axis(Axis(1), 0).mapv(|x| (3.0 * x).sin());
        let down = &difference * (2.0 / count);
        let inside = &down.view().insert_axis(Axis(1)) * &output * hidden.mapv(|h| 1.0 - h * h);
        let gradients = [
            (&inside * &x).sum_axis(Axis(0)),
            inside.sum_axis(Axis(0)),
            hidden.t().dot(&down),
            Array1::from_elem(1, down.sum()),
        ];
        (difference.mapv(|d| d * d).sum() / count, gradients)
    }
}

/// Writes a gradient into its place, or adds it to what is there.
fn add(gradient: &Array1<f32>, is_there: bool, place: &mut Tensor) -> Result<()> {
    place.with_array_mut::<f32, _>(|mut place| {
        if is_there {
            place.zip_mut_with(&gradient.view().into_dyn(), |sum, number| *sum += number);
        } else {
            place.assign(&gradient.view().into_dyn());
        }
    })
}

fn main() -> Result<()> {
    let state = StateOptions::new().cpu(true).build()?;
    let model = Model::container("Network")?;
    let initial = [
        Array1::from_shape_fn(HIDDEN, |i| 3.0 * noise(i)),
        Array1::from_shape_fn(HIDDEN, |i| noise(i + 100)),
        Array1::from_shape_fn(HIDDEN, |i| 0.2 * noise(i + 200)),
        Array1::zeros(1),
    ];
    for (name, array) in NAMES.iter().zip(initial) {
        model.add_parameter(name, Tensor::from_array(array)?, RequiresGrad::Yes)?;
    }
    let mut parameters = Parameters::new(&state, &model, ParametersOptions::new())?;
    let network = Network { tensors: NAMES.iter().map(|name| model.tensor(name)).collect::<Result<_>>()? };
    let optimizer = state.prepare_optimizer(&Optimizer::adam(&model, AdamOptions::new().lr(0.01))?)?;

    // A batch is shared by the processes, and by the micro-batches that accumulate.
    let (processes, rank) = (state.num_processes() as usize, state.process_index() as usize);
    let micro_batches = state.gradient_accumulation_steps() as usize;
    let parts = processes * micro_batches;
    state.print(&format!("processes: {processes}"))?;
    for step in 0..STEPS {
        let mut loss = 0.0;
        for micro in 0..micro_batches {
            let mine = micro * processes + rank;
            let samples = BATCH * mine / parts..BATCH * (mine + 1) / parts;
            let x: Array1<f32> = samples.map(|i| noise(step * BATCH + i + 1000)).collect();
            state.accumulate(&[])?.run(|| {
                let (error, gradients) = network.learn(&x, (BATCH / parts) as f32)?;
                loss += error / micro_batches as f32;
                // The exchange of each gradient starts as soon as it is complete, the last ones first.
                for (index, gradient) in gradients.into_iter().enumerate().rev() {
                    add(&gradient, micro > 0, &mut parameters.gradient(index)?)?;
                    parameters.grad_ready(index, None)?;
                }
                parameters.synchronize()?;
                state.clip_grad_norm(&model, 1.0, 2.0)?;
                optimizer.step().map(drop)
            })?;
        }
        if (step + 1) % 100 == 0 {
            let mean = state.reduce(&Tensor::scalar(loss)?, Reduction::Mean, 1.0)?.item()?;
            state.print(&format!("loss of step {}: {mean:.5}", step + 1))?;
        }
    }
    state.end_training()
}
