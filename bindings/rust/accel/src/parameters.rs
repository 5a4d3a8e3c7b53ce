// SPDX-License-Identifier: Apache-2.0
//! Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd.
use crate::builders::{ParametersOptions, ParametersStepOptions};
use crate::call::made;
use crate::error::{check, Result};
use crate::handle::handle;
use crate::memory::{self, Reserved};
use crate::module::Model;
use crate::optimizer::Optimizer;
use crate::options::optional;
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
    reported: Mutex<Vec<Reserved>>,
}

impl State {
    /// Registers the parameters of a program that has an autograd of its own, or none. The tensors are the memory that it computes
    /// with, and stays that: [`Tensor::from_raw_parts`], [`Tensor::over_slice`], [`Tensor::from_dlpack`]. All ranks get rank 0's
    /// values in it. Dots in names are levels of modules, which sharding wraps.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::prelude::*;
    /// let state = StateOptions::new().cpu(true).build()?;
    /// let mut slope = [0.0f32]; // the program's own
    /// // SAFETY: it lives longer than the parameters, and is read only between their steps.
    /// let shared = unsafe { Tensor::over_slice(&mut slope, &[1])? };
    /// let mut parameters = state.register_parameters([("slope", shared)], None)?;
    /// let sgd = Optimizer::sgd(&parameters.module()?, SgdOptions::new().lr(0.1))?;
    /// let optimizer = state.prepare_optimizer(&sgd)?;
    /// for _ in 0..50 {
    ///     let gradient = Tensor::from_slice(&[2.0 * (slope[0] - 3.0)], &[1])?;
    ///     parameters.step(&optimizer, [("slope", gradient)], None)?;
    /// }
    /// assert!((slope[0] - 3.0).abs() < 1e-3);
    /// # drop((parameters, optimizer, sgd)); state.end_training() }
    /// ```
    ///
    /// # Errors
    /// InvalidArgument for no parameters, names that are empty or the front part of another one, memory that two of them share or
    /// that is registered already; TypeMismatch for another dtype than a floating one; Unsupported for another device, or gaps
    /// between elements; CollectiveMismatch when the ranks' parameters differ.
    pub fn register_parameters<Name: AsRef<str>>(
        &self,
        tensors: impl IntoIterator<Item = (Name, Tensor)>,
        options: impl Into<Option<ParametersOptions>>,
    ) -> Result<Parameters> {
        let (tensors, options) = (named(tensors)?, options.into());
        memory::writes(&tensors)?;
        let options = optional(&options)?;
        let handle =
            made(|out| unsafe { sys::accel_parameters_register(self.as_raw(), tensors.as_raw(), options, out) })?;
        Ok(Parameters { handle, reported: Mutex::new(Vec::new()) })
    }
}

/// A map of them.
fn named<Name: AsRef<str>>(tensors: impl IntoIterator<Item = (Name, Tensor)>) -> Result<Value> {
    Value::map(tensors.into_iter().map(|(name, tensor)| (name, tensor.into())))
}

impl Parameters {
    /// Puts a model on the device, starts all ranks from rank 0's values, and gives each trainable parameter a gradient.
    pub fn new(state: &State, model: &Model, options: ParametersOptions) -> Result<Self> {
        memory::writes(model)?;
        let handle =
            made(|out| unsafe { sys::accel_parameters_create(state.as_raw(), model.as_raw(), &options.0, out) })?;
        Ok(Parameters { handle, reported: Mutex::new(Vec::new()) })
    }

    /// The module of the parameters, with the names that they were registered with: for optimizers, clipping and checkpoints.
    pub fn module(&self) -> Result<Model> {
        made(|out| unsafe { sys::accel_parameters_module(self.handle.as_raw(), out) })
    }

    /// One micro-batch whose gradients the program has computed: by the names of all parameters, in their shapes, of any floating
    /// dtype, on any device. In the last micro-batch of a group they are averaged over the ranks and clipped, and the optimizer
    /// updates the weights in the memory of the program; in the others they are added up.
    ///
    /// # Errors
    /// InvalidArgument that names unknown or missing parameters; ShapeMismatch and TypeMismatch with the parameter's name, in all
    /// of which cases nothing has changed; InvalidState; CollectiveMismatch, Timeout, PeerLost, Cancelled.
    pub fn step<Name: AsRef<str>>(
        &mut self,
        optimizer: &Optimizer,
        gradients: impl IntoIterator<Item = (Name, Tensor)>,
        options: impl Into<Option<ParametersStepOptions>>,
    ) -> Result<()> {
        self.step_of(optimizer, &named(gradients)?, options.into(), ptr::null_mut())
    }

    /// Same as [`Parameters::step`], and gives the joint norm of the gradients before they were clipped; None while they
    /// are added up.
    ///
    /// # Errors
    /// Same as there.
    pub fn step_with_norm<Name: AsRef<str>>(
        &mut self,
        optimizer: &Optimizer,
        gradients: impl IntoIterator<Item = (Name, Tensor)>,
        options: impl Into<Option<ParametersStepOptions>>,
    ) -> Result<Option<f64>> {
        let mut norm = f64::NAN;
        self.step_of(optimizer, &named(gradients)?, options.into(), &mut norm)?;
        Ok(Some(norm).filter(|norm| !norm.is_nan()))
    }

    fn step_of(
        &mut self,
        optimizer: &Optimizer,
        gradients: &Value,
        options: Option<ParametersStepOptions>,
        norm: *mut f64,
    ) -> Result<()> {
        memory::reads(gradients)?;
        memory::writes_anything()?;
        let options = optional(&options)?;
        let (handle, optimizer) = (self.handle.as_raw(), optimizer.as_raw());
        check(unsafe { sys::accel_parameters_step(handle, optimizer, gradients.as_raw(), options, norm) }).map(drop)
    }

    /// The memory of a gradient, by the number of its parameter in [`Model::named_parameters`]. A gradient that is written
    /// there is not copied. From [`Parameters::grad_ready`] to the end of [`Parameters::synchronize`] it cannot be seen.
    pub fn gradient(&self, index: usize) -> Result<Tensor> {
        made(|out| unsafe { sys::accel_parameters_gradient(self.handle.as_raw(), index, out) })
    }

    /// Says that a gradient of this micro-batch is complete: `None` when it was written in its memory.
    pub fn grad_ready(&self, index: usize, gradient: Option<&Tensor>) -> Result<()> {
        memory::reads(&gradient)?;
        let held = Reserved::by_call(&Value::none(), &self.gradient(index)?)?;
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

    fn take_reported(&mut self) -> Vec<Reserved> {
        std::mem::take(self.reported.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}
