//! Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd.
use crate::accelerator::ParametersOptions;
use crate::error::{check, Result};
use crate::handle::handle;
use crate::module::Model;
use crate::state::State;
use crate::tensor::Tensor;
use crate::work::Work;
use accel_sys as sys;
use std::ptr;

handle! {
    /// Parameters whose gradients the program computes itself. They are averaged over the ranks while it computes the
    /// next ones; optimizers, clipping and checkpoints take the model as any other.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{Model, Optimizer, Parameters, ParametersOptions, SgdOptions, StateOptions, Tensor};
    /// let state = StateOptions::new().cpu(true).build()?;
    /// let model = Model::container("Slope")?;
    /// model.add_parameter("slope", Tensor::from_vec(vec![0.0f32], &[1])?, true)?;
    /// let mut parameters = Parameters::new(&state, &model, ParametersOptions::new())?;
    /// let optimizer = state.prepare_optimizer(&Optimizer::sgd(&model, SgdOptions::new().lr(0.1))?)?;
    /// for _ in 0..50 {
    ///     state.accumulate(&[])?.run(|| {
    ///         // The mean of (slope * x - 3 * x) ^ 2 at x = 1, and its gradient, computed here.
    ///         let slope = model.tensor("slope")?.as_slice::<f32>()?[0];
    ///         parameters.gradient(0)?.as_mut_slice::<f32>()?[0] = 2.0 * (slope - 3.0);
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
    Parameters(accel_parameters_t), accel_parameters_release
}

// What takes `&self` is of the kind `any`.
unsafe impl Sync for Parameters {}

impl Parameters {
    /// Puts a model on the device, starts all ranks from rank 0's values, and gives each trainable parameter a gradient.
    pub fn new(state: &State, model: &Model, options: ParametersOptions) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_parameters_create(state.as_raw(), model.as_raw(), &options.0, out) })
    }

    /// The memory of a gradient, by the number of its parameter in [`Model::named_parameters`]. What is written there is
    /// not copied.
    pub fn gradient(&self, index: usize) -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::accel_parameters_gradient(self.as_raw(), index, out) })
    }

    /// Says that a gradient of this micro-batch is complete: `None` when it was written in its memory.
    pub fn grad_ready(&self, index: usize, gradient: Option<&Tensor>) -> Result<()> {
        let gradient = gradient.map_or(ptr::null(), |gradient| gradient.as_raw() as *const _);
        check(unsafe { sys::accel_parameters_grad_ready(self.as_raw(), index, gradient) }).map(drop)
    }

    /// The end of a micro-batch. In the last one of a group it returns when all gradients are the mean over the ranks.
    pub fn synchronize(&mut self) -> Result<()> {
        check(unsafe { sys::accel_parameters_synchronize(self.as_raw()) }).map(drop)
    }

    /// Starts [`Parameters::synchronize`]. Until the work has ended gradients must not be touched.
    pub fn synchronize_async(&mut self) -> Result<Work<()>> {
        Work::of_tree((), |_: *const _, out| unsafe { sys::accel_parameters_synchronize_async(self.as_raw(), out) })
    }
}
