//! Optimizers: what updates parameters from their gradients.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, Error, ErrorCode, Result};
use crate::generated::*;
use crate::handle::{array, c_string, handle};
use crate::memory;
use crate::module::Model;
use crate::nn::unset_or;
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::ptr;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The parameters were updated.
    Updated,
    /// Gradients accumulate, or overflowed.
    Skipped,
}

handle! {
    /// Updates parameters from their gradients. One thread at a time uses it.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{nn, AdamOptions, Optimizer, Tensor};
    /// let model = nn::linear(1, 1, false)?;
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

macro_rules! optimizers {
    ($($(#[$text:meta])* $name:ident($options:ident) = $function:ident;)*) => {$(
        $(#[$text])*
        pub fn $name<'a>(model: impl Into<Option<&'a Model>>, options: $options) -> Result<Self> {
            let module = model.into().map_or(ptr::null(), |model| model.as_raw() as *const _);
            // SAFETY: the handle is alive or NULL, and the options are those of the function.
            Self::made(|out| unsafe { sys::$function(module, &options.0, out) })
        }
    )*};
}

/// Optimizers that are made, of the trainable parameters of a model. With `None` groups are added later.
impl Optimizer {
    optimizers! {
        /// AdamW.
        adamw(AdamOptions) = accel_optimizer_adamw;
        /// Adam.
        adam(AdamOptions) = accel_optimizer_adam;
        /// AdamW whose moments take a byte each. On the CPU.
        adamw_8bit(AdamOptions) = accel_optimizer_adamw_8bit;
        /// Stochastic gradient descent.
        sgd(SgdOptions) = accel_optimizer_sgd;
        /// Adagrad.
        adagrad(AdagradOptions) = accel_optimizer_adagrad;
        /// RMSprop.
        rmsprop(RmspropOptions) = accel_optimizer_rmsprop;
        /// Adamax.
        adamax(AdamaxOptions) = accel_optimizer_adamax;
        /// NAdam.
        nadam(NadamOptions) = accel_optimizer_nadam;
        /// RAdam.
        radam(RadamOptions) = accel_optimizer_radam;
        /// Lion.
        lion(LionOptions) = accel_optimizer_lion;
        /// LAMB.
        lamb(LambOptions) = accel_optimizer_lamb;
        /// Adafactor.
        adafactor(AdafactorOptions) = accel_optimizer_adafactor;
        /// Muon, only for matrices.
        muon(MuonOptions) = accel_optimizer_muon;
        /// LOMO: [`State::lomo_backward`](crate::State::lomo_backward) updates.
        lomo(LomoOptions) = accel_optimizer_lomo;
        /// AdaLomo: [`State::lomo_backward`](crate::State::lomo_backward) updates.
        adalomo(AdalomoOptions) = accel_optimizer_adalomo;
        /// Schedule-free SGD; see [`Optimizer::train`].
        schedule_free_sgd(ScheduleFreeSgdOptions) = accel_optimizer_schedule_free_sgd;
        /// Schedule-free AdamW; see [`Optimizer::train`].
        schedule_free_adamw(ScheduleFreeAdamwOptions) = accel_optimizer_schedule_free_adamw;
    }

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
        let names = state_names.iter().map(c_string).collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let (first, length) = array(&names);
        let (data, destroy) = hand_over(Exclusive::new(update));
        // SAFETY: the names live through the call, and the closure is of the kind that the callback takes.
        Self::made(|out| unsafe {
            let call = Some(call_update::<F> as sys::accel_update_fn);
            sys::accel_optimizer_create(module, first, length, lr, weight_decay, call, data, destroy, out)
        })
    }
}

/// One update of a parameter by the program, which changes the tensors in place.
pub struct Update<'a> {
    /// The parameter.
    pub parameter: &'a mut Tensor,
    /// Its gradient.
    pub gradient: &'a mut Tensor,
    /// Updates of this parameter, this one included.
    pub step: i64,
    /// Of its group.
    pub lr: f64,
    /// Of its group.
    pub weight_decay: f64,
    states: &'a Value,
}

impl Update<'_> {
    /// A tensor that is kept for the parameter; zeros before its first update.
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
    /// One update of all parameters that have a gradient. A prepared optimizer does nothing while gradients accumulate.
    pub fn step(&self) -> Result<Step> {
        memory::writes_anything()?;
        let status = check(unsafe { sys::accel_optimizer_step(self.as_raw()) })?;
        Ok(if status == sys::ACCEL_STEP_SKIPPED { Step::Skipped } else { Step::Updated })
    }

    /// One update by the gradients of a closure, which zeroes the gradients, runs forward and backward, and returns the
    /// loss. The loss is what comes back; `None` where gradients accumulate and the closure was not called.
    pub fn step_closure<F>(&self, closure: F) -> Result<Option<Tensor>>
    where
        F: FnMut() -> CallbackResult<Tensor> + Send + 'static,
    {
        memory::writes_anything()?;
        let (data, destroy) = hand_over(Exclusive::new(closure));
        let mut out = ptr::null_mut();
        // SAFETY: the closure is of the kind that the callback takes.
        check(unsafe {
            sys::accel_optimizer_step_closure(self.as_raw(), Some(evaluate::<F>), data, destroy, &mut out)
        })?;
        // SAFETY: what was written belongs to the caller.
        Ok((!out.is_null()).then(|| unsafe { Tensor::from_raw(out) }))
    }

    /// Switches the parameters of a schedule-free optimizer between those that are trained and their average, which is what
    /// is to be evaluated and saved. Others have nothing to switch.
    pub fn train(&self, training: bool) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_optimizer_train(self.as_raw(), training.into()) }).map(drop)
    }

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

    /// Whether the latest update was skipped, since gradients overflowed.
    pub fn step_was_skipped(&self) -> bool {
        unsafe { sys::accel_optimizer_step_was_skipped(self.as_raw()) == 1 }
    }

    /// Adds a group of leaves. What is not given is as the optimizer was made with.
    pub fn add_group(&self, parameters: &[&Tensor], lr: Option<f64>, weight_decay: Option<f64>) -> Result<()> {
        let handles: Vec<_> = parameters.iter().map(|parameter| parameter.as_raw()).collect();
        let ((first, length), lr, decay) = (array(&handles), unset_or(lr), unset_or(weight_decay));
        check(unsafe { sys::accel_optimizer_add_group(self.as_raw(), first, length, lr, decay) }).map(drop)
    }

    /// The number of groups.
    pub fn num_groups(&self) -> usize {
        unsafe { sys::accel_optimizer_num_groups(self.as_raw()) }.max(0) as usize
    }

    /// Bytes that are kept of the parameters: momenta, moments, master weights.
    pub fn state_bytes(&self) -> u64 {
        unsafe { sys::accel_optimizer_state_bytes(self.as_raw()) }.max(0) as u64
    }

    /// The learning rate of a group.
    pub fn lr(&self, group: usize) -> Result<f64> {
        let mut out = 0.0;
        check(unsafe { sys::accel_optimizer_lr(self.as_raw(), group, &mut out) })?;
        Ok(out)
    }

    /// Sets the learning rate of a group.
    pub fn set_lr(&self, group: usize, lr: f64) -> Result<()> {
        check(unsafe { sys::accel_optimizer_set_lr(self.as_raw(), group, lr) }).map(drop)
    }

    /// A setting of a group by its name in the options; flags are 0 and 1. `None` where it has no value.
    pub fn setting(&self, group: usize, name: &str) -> Result<Option<f64>> {
        let (name, mut out) = (c_string(name)?, 0.0);
        check(unsafe { sys::accel_optimizer_setting(self.as_raw(), group, name.as_ptr(), &mut out) })?;
        Ok(Some(out).filter(|value| *value != sys::ACCEL_UNSET_DOUBLE))
    }

    /// Changes a setting of a group, for all further steps.
    pub fn set_setting(&self, group: usize, name: &str, value: f64) -> Result<()> {
        let name = c_string(name)?;
        check(unsafe { sys::accel_optimizer_set_setting(self.as_raw(), group, name.as_ptr(), value) }).map(drop)
    }

    /// How the half-precision parameters of a group are updated.
    pub fn set_update_precision(&self, group: usize, precision: UpdatePrecision) -> Result<()> {
        check(unsafe { sys::accel_optimizer_set_update_precision(self.as_raw(), group, precision.into()) }).map(drop)
    }

    /// The state, with the keys of `torch.optim`.
    pub fn state_dict(&self) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_optimizer_state_dict(self.as_raw(), out) })
    }

    /// Takes it back; nothing changes when it does not fit.
    pub fn load_state_dict(&self, state_dict: &Value) -> Result<()> {
        memory::reads(&[state_dict.into()])?;
        memory::writes_anything()?;
        check(unsafe { sys::accel_optimizer_load_state_dict(self.as_raw(), state_dict.as_raw()) }).map(drop)
    }
}

unsafe extern "C" fn evaluate<F>(out: *mut *mut sys::accel_tensor_t, data: *mut c_void) -> i32
where
    F: FnMut() -> CallbackResult<Tensor>,
{
    callback::run(|| {
        let loss = closure::<Exclusive<F>>(data).with(|function| function())?;
        *out = sys::accel_tensor_retain(loss.as_raw());
        Ok(())
    })
}

unsafe extern "C" fn call_update<F>(
    parameter: *mut sys::accel_tensor_t,
    gradient: *mut sys::accel_tensor_t,
    states: *const sys::accel_value_t,
    step: i64,
    lr: f64,
    weight_decay: f64,
    data: *mut c_void,
) -> i32
where
    F: FnMut(&mut Update<'_>) -> CallbackResult,
{
    callback::run(|| {
        let (mut parameter, mut gradient) = (Tensor::shared_from_raw(parameter), Tensor::shared_from_raw(gradient));
        let states = Value::borrowed(states).ok_or("an update without states")?;
        let mut update = Update { parameter: &mut parameter, gradient: &mut gradient, step, lr, weight_decay, states };
        closure::<Exclusive<F>>(data).with(|function| function(&mut update))
    })
}
