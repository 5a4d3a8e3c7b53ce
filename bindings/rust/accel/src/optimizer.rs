// SPDX-License-Identifier: Apache-2.0
//! Optimizers: what updates parameters from their gradients.
use crate::call::made;
use crate::callback::CallbackResult;
use crate::error::{check, Error, ErrorCode, Result};
use crate::handle::handle;
use crate::memory;
use crate::module::Model;
use crate::strings::Texts;
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ptr;

#[rustfmt::skip]
#[path = "generated/optimizer_closures.rs"]
pub(crate) mod closures;

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The parameters were updated.
    Updated,
    /// Gradients accumulate, or overflowed.
    Skipped,
}

impl Step {
    pub(crate) fn from_status(status: i32) -> Self {
        if status == sys::ACCEL_STEP_SKIPPED {
            Step::Skipped
        } else {
            Step::Updated
        }
    }
}

handle! {
    /// Updates parameters from their gradients. One thread at a time uses it.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{AdamOptions, Bias, Optimizer, Tensor, nn};
    /// let model = nn::linear(1, 1, Bias::Without)?;
    /// let optimizer = Optimizer::adamw(&model, AdamOptions::new().lr(0.1).weight_decay(0.0))?;
    /// let mut loss = model.forward(&Tensor::from_slice(&[1.0f32], &[1, 1])?)?.sum()?;
    /// let before = model.tensor("weight")?.item()?;
    /// loss.backward()?;
    /// optimizer.step()?;
    /// assert!((model.tensor("weight")?.item()? - (before - 0.1)).abs() < 1e-6);
    /// # Ok(()) }
    /// ```
    Optimizer(accel_optimizer_t), accel_optimizer_release
}

/// Optimizers that are made, of the trainable parameters of a model. With `None` groups are added later.
impl Optimizer {
    /// An optimizer whose update the program computes, with so many tensors like each parameter as there are names.
    pub fn custom<'a, F>(
        model: impl Into<Option<&'a Model>>,
        state_names: &[&str],
        lr: f64,
        weight_decay: f64,
        update: F,
    ) -> Result<Self>
    where
        F: FnMut(&mut Update<'_>) -> CallbackResult + Send + 'static,
    {
        let module = model.into().map_or(ptr::null(), |model| model.as_raw() as *const _);
        let names = Texts::new(state_names)?;
        let mut update = update;
        let (call, data, destroy) = closures::update(move |parameter, gradient, states, step, lr, weight_decay| {
            update(&mut Update { parameter, gradient, step, lr, weight_decay, states })
        });
        made(|out| unsafe {
            sys::accel_optimizer_create(module, names.as_ptr(), names.len(), lr, weight_decay, call, data, destroy, out)
        })
    }
}

/// One update of a parameter by the program, which changes the tensors in place.
#[derive(Debug)]
pub struct Update<'a> {
    /// The parameter.
    pub parameter: &'a mut Tensor,
    /// Its gradient.
    pub gradient: &'a mut Tensor,
    /// Updates of this parameter, this one included.
    pub step: i64,
    /// The learning rate of its group.
    pub lr: f64,
    /// The weight decay of its group.
    pub weight_decay: f64,
    states: &'a Value,
}

impl Update<'_> {
    /// A state tensor of the parameter; zeros before its first update.
    ///
    /// # Errors
    /// NotFound for another name than those that the optimizer was made with.
    pub fn state(&self, name: &str) -> Result<Tensor> {
        let item = self.states.get(name).ok_or_else(|| {
            let message = format!("state {name:?}: expected one of {:?}", self.states);
            Error::new(ErrorCode::NotFound, message)
        })?;
        item.try_clone()?.into_tensor()
    }
}

/// Optimizers at work.
impl Optimizer {
    /// Drops the gradients: a parameter has none until a backward reaches it, and [`step`](Self::step) leaves it alone until
    /// then. A prepared optimizer does nothing while gradients accumulate.
    pub fn zero_grad(&self) -> Result<()> {
        check(unsafe { sys::accel_optimizer_zero_grad(self.as_raw(), 1) }).map(drop)
    }

    /// Fills the gradients with zeros where they are, as `zero_grad(set_to_none=False)` of torch: momentum and weight decay go
    /// on changing parameters that no backward reaches.
    pub fn fill_gradients_with_zeros(&self) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_optimizer_zero_grad(self.as_raw(), 0) }).map(drop)
    }

    /// The number of groups.
    pub fn num_groups(&self) -> usize {
        unsafe { sys::accel_optimizer_num_groups(self.as_raw()) }.max(0) as usize
    }

    /// The bytes of the parameters' states: momenta, moments, master weights.
    pub fn state_bytes(&self) -> u64 {
        unsafe { sys::accel_optimizer_state_bytes(self.as_raw()) }.max(0) as u64
    }
}
