//! Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd.
use crate::builders::ParametersOptions;
use crate::call::made;
use crate::error::{check, Result};
use crate::handle::handle;
use crate::memory::{self, Held};
use crate::module::Model;
use crate::state::State;
use crate::tensor::Tensor;
use crate::value::Value;
use crate::work::Work;
use accel_sys as sys;
use std::ptr;
use std::sync::{Mutex, PoisonError};

handle! {
    /// The parameters themselves.
    ParametersHandle(accel_parameters_t), accel_parameters_release
}

// SAFETY: what takes `&self` is of the kind `any`.
unsafe impl Sync for ParametersHandle {}

/// Parameters whose gradients the program computes itself. They are averaged over the ranks while it computes the
/// next ones; optimizers, clipping and checkpoints take the model as any other.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{Model, Optimizer, Parameters, ParametersOptions, RequiresGrad, SgdOptions, StateOptions, Tensor};
/// let state = StateOptions::new().cpu(true).build()?;
/// let model = Model::container("Slope")?;
/// model.add_parameter("slope", Tensor::from_vec(vec![0.0f32], &[1])?, RequiresGrad::Yes)?;
/// let mut parameters = Parameters::new(&state, &model, ParametersOptions::new())?;
/// let optimizer = state.prepare_optimizer(&Optimizer::sgd(&model, SgdOptions::new().lr(0.1))?)?;
/// for _ in 0..50 {
///     state.accumulate(&[])?.run(|| {
///         // The mean of (slope * x - 3 * x) ^ 2 at x = 1, and its gradient, computed here.
///         let slope = model.tensor("slope")?.with_slice(|slope: &[f32]| slope[0])?;
///         parameters.gradient(0)?.with_slice_mut(|gradient| gradient[0] = 2.0 * (slope - 3.0))?;
///         parameters.grad_ready(0, None)?;
///         parameters.synchronize()?;
///         optimizer.step().map(drop)
///     })?;
/// }
/// assert!((model.tensor("slope")?.item()? - 3.0).abs() < 1e-3);
/// # drop((parameters, optimizer, model)); state.end_training() }
/// ```
///
/// Several threads may report gradients at the same time; the other functions need the parameters for themselves.
#[derive(Debug)]
pub struct Parameters {
    handle: ParametersHandle,
    /// Gradients that are on their way.
    reported: Mutex<Vec<Held>>,
}

impl Parameters {
    /// Puts a model on the device, starts all ranks from rank 0's values, and gives each trainable parameter a gradient.
    pub fn new(state: &State, model: &Model, options: ParametersOptions) -> Result<Self> {
        memory::writes(model)?;
        let handle =
            made(|out| unsafe { sys::accel_parameters_create(state.as_raw(), model.as_raw(), &options.0, out) })?;
        Ok(Parameters { handle, reported: Mutex::new(Vec::new()) })
    }

    /// The memory of a gradient, by the number of its parameter in [`Model::named_parameters`]. What is written there is
    /// not copied. From [`Parameters::grad_ready`] to the end of [`Parameters::synchronize`] it cannot be seen.
    pub fn gradient(&self, index: usize) -> Result<Tensor> {
        made(|out| unsafe { sys::accel_parameters_gradient(self.handle.as_raw(), index, out) })
    }

    /// Says that a gradient of this micro-batch is complete: `None` when it was written in its memory.
    pub fn grad_ready(&self, index: usize, gradient: Option<&Tensor>) -> Result<()> {
        memory::reads(&gradient)?;
        let held = Held::by_call(&Value::none(), &self.gradient(index)?)?;
        let gradient = gradient.map_or(ptr::null(), |gradient| gradient.as_raw() as *const _);
        check(unsafe { sys::accel_parameters_grad_ready(self.handle.as_raw(), index, gradient) })?;
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        Ok(())
    }

    /// The end of a micro-batch. In the last one of a group it returns when all gradients are the mean over the ranks.
    pub fn synchronize(&mut self) -> Result<()> {
        memory::writes_anything()?;
        let _until_the_end = self.take_reported();
        check(unsafe { sys::accel_parameters_synchronize(self.handle.as_raw()) }).map(drop)
    }

    /// Starts [`Parameters::synchronize`]. Until the work has ended gradients must not be touched.
    pub fn synchronize_async(&mut self) -> Result<Work<()>> {
        memory::writes_anything()?;
        let handle = self.handle.as_raw();
        let work =
            Work::of_tree((), |_: *const _, out| unsafe { sys::accel_parameters_synchronize_async(handle, out) })?;
        Ok(work.with_memory(self.take_reported()))
    }

    fn take_reported(&mut self) -> Vec<Held> {
        std::mem::take(self.reported.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}
