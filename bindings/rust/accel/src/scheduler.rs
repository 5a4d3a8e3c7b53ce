//! Schedulers: what drives learning rates.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, check_callback_of_numbers, Result};
use crate::generated::{CyclicOptions, OneCycleOptions, PlateauOptions};
use crate::handle::{array, handle};
use crate::optimizer::Optimizer;
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::ptr;

handle! {
    /// Drives the learning rates of an optimizer. One thread at a time uses it.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{nn, Optimizer, Scheduler, SgdOptions};
    /// let optimizer = Optimizer::sgd(&nn::linear(1, 1, true)?, SgdOptions::new().lr(1.0))?;
    /// let scheduler = Scheduler::lambda(&optimizer, |step| Ok(0.5f64.powi(step as i32)))?;
    /// scheduler.step()?;
    /// scheduler.step()?;
    /// assert_eq!(scheduler.last_lr(0)?, 0.25);
    /// # Ok(()) }
    /// ```
    Scheduler(accel_scheduler_t), accel_scheduler_release
}

macro_rules! schedules {
    ($($(#[$text:meta])* $name:ident($($argument:ident: $kind:ty),*) = $function:ident;)*) => {$(
        $(#[$text])*
        pub fn $name(optimizer: &Optimizer, $($argument: $kind),*) -> Result<Self> {
            // SAFETY: the handle is alive, the arguments are numbers, and what is written belongs to the caller.
            Self::made(|out| unsafe { sys::$function(optimizer.as_raw(), $($argument,)* out) })
        }
    )*};
}

/// Schedules.
impl Scheduler {
    schedules! {
        /// Multiplies by gamma every `step_size` steps.
        step_lr(step_size: i64, gamma: f64) = accel_scheduler_step_lr;
        /// Rises linearly, then falls along half a cosine to `min_factor` of the rate at `total_steps`.
        cosine(warmup_steps: i64, total_steps: i64, min_factor: f64) = accel_scheduler_cosine;
        /// Rises linearly, then falls linearly to 0 at `total_steps`.
        linear_warmup(warmup_steps: i64, total_steps: i64) = accel_scheduler_linear_warmup;
        /// Rises linearly, then falls `num_cycles` times along half a cosine to 0.
        cosine_hard_restarts(warmup_steps: i64, total_steps: i64, num_cycles: i64) =
            accel_scheduler_cosine_hard_restarts;
        /// Rises linearly, and stays.
        constant_with_warmup(warmup_steps: i64) = accel_scheduler_constant_with_warmup;
        /// The initial rate times `factor` for `total_iters` steps, then the initial rate.
        constant(factor: f64, total_iters: i64) = accel_scheduler_constant;
        /// From one factor of the initial rate to another, along a line.
        linear(start_factor: f64, end_factor: f64, total_iters: i64) = accel_scheduler_linear;
        /// Multiplies by gamma in each step.
        exponential(gamma: f64) = accel_scheduler_exponential;
        /// The initial rate times (1 - step / total_iters) to the power.
        polynomial(total_iters: i64, power: f64) = accel_scheduler_polynomial;
        /// To `eta_min` in `t_max` steps along half a cosine, and back.
        cosine_annealing(t_max: i64, eta_min: f64) = accel_scheduler_cosine_annealing;
        /// To `eta_min` along half a cosine, again and again: in t_0 steps, then in t_0 * t_mult, ...
        cosine_warm_restarts(t_0: i64, t_mult: i64, eta_min: f64) = accel_scheduler_cosine_warm_restarts;
    }

    /// The factor of the initial rate at each step, from 0. A function that fails gives no factor: the step fails.
    pub fn lambda<F>(optimizer: &Optimizer, factor: F) -> Result<Self>
    where
        F: FnMut(i64) -> CallbackResult<f64> + Send + 'static,
    {
        let ((data, destroy), mut made) = (hand_over(Exclusive::new(factor)), ptr::null_mut());
        check_callback_of_numbers(|| unsafe {
            sys::accel_scheduler_lambda(optimizer.as_raw(), Some(call_factor::<F>), data, destroy, &mut made)
        })?;
        // SAFETY: the call succeeded, so it has written a handle that belongs to the caller.
        Ok(unsafe { Self::from_raw(made) })
    }

    /// Rises linearly, then falls with the inverse square root. The timescale is `warmup_steps` if it is not given.
    pub fn inverse_sqrt(optimizer: &Optimizer, warmup_steps: i64, timescale: Option<i64>) -> Result<Self> {
        let timescale = timescale.unwrap_or(sys::ACCEL_UNSET_INT64);
        Self::made(|out| unsafe { sys::accel_scheduler_inverse_sqrt(optimizer.as_raw(), warmup_steps, timescale, out) })
    }

    /// Multiplies by gamma at each milestone.
    pub fn multi_step(optimizer: &Optimizer, milestones: &[i64], gamma: f64) -> Result<Self> {
        let (first, length) = array(milestones);
        Self::made(|out| unsafe { sys::accel_scheduler_multi_step(optimizer.as_raw(), first, length, gamma, out) })
    }

    /// One rise to `max_lr` and one fall far below the first rate, in `total_steps`.
    pub fn one_cycle(optimizer: &Optimizer, max_lr: f64, total_steps: i64, options: OneCycleOptions) -> Result<Self> {
        Self::made(|out| unsafe {
            sys::accel_scheduler_one_cycle(optimizer.as_raw(), max_lr, total_steps, &options.0, out)
        })
    }

    /// Between two rates, up and down again and again.
    pub fn cyclic(optimizer: &Optimizer, base_lr: f64, max_lr: f64, options: CyclicOptions) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_scheduler_cyclic(optimizer.as_raw(), base_lr, max_lr, &options.0, out) })
    }

    /// Reduces the rates when a metric does not get better any more; steps by [`Scheduler::step_metric`].
    pub fn plateau(optimizer: &Optimizer, options: PlateauOptions) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_scheduler_plateau(optimizer.as_raw(), &options.0, out) })
    }

    /// Steps several schedulers of one optimizer together: their factors multiply.
    pub fn chained(schedulers: Vec<Scheduler>) -> Result<Self> {
        let handles: Vec<_> = schedulers.iter().map(Scheduler::as_raw).collect();
        let (first, length) = array(&handles);
        Self::made(|out| unsafe { sys::accel_scheduler_chained(first, length, out) })
    }

    /// One scheduler after the other; the next one takes over at its milestone.
    pub fn sequential(schedulers: Vec<Scheduler>, milestones: &[i64]) -> Result<Self> {
        let handles: Vec<_> = schedulers.iter().map(Scheduler::as_raw).collect();
        let ((first, length), (steps, n_steps)) = (array(&handles), array(milestones));
        Self::made(|out| unsafe { sys::accel_scheduler_sequential(first, length, steps, n_steps, out) })
    }
}

/// Schedulers at work.
impl Scheduler {
    /// One step on. A prepared scheduler follows the accumulation and the skipped steps of its optimizer.
    pub fn step(&self) -> Result<()> {
        check_callback_of_numbers(|| unsafe { sys::accel_scheduler_step(self.as_raw()) }).map(drop)
    }

    /// One step on with what was measured, the same on all ranks.
    pub fn step_metric(&self, metric: f64) -> Result<()> {
        check(unsafe { sys::accel_scheduler_step_metric(self.as_raw(), metric) }).map(drop)
    }

    /// The learning rate of a group that the latest step set.
    pub fn last_lr(&self, group: usize) -> Result<f64> {
        let mut out = 0.0;
        check(unsafe { sys::accel_scheduler_last_lr(self.as_raw(), group, &mut out) })?;
        Ok(out)
    }

    /// The rates of the coming updates, without training: float64 `[n_steps, groups]`.
    pub fn curve(&self, n_steps: i64) -> Result<Tensor> {
        let mut curve = ptr::null_mut();
        check_callback_of_numbers(|| unsafe { sys::accel_scheduler_curve(self.as_raw(), n_steps, &mut curve) })?;
        // SAFETY: as above.
        Ok(unsafe { Tensor::from_raw(curve) })
    }

    /// The state, with the keys of `torch.optim.lr_scheduler`.
    pub fn state_dict(&self) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_scheduler_state_dict(self.as_raw(), out) })
    }

    /// Takes it back.
    pub fn load_state_dict(&self, state_dict: &Value) -> Result<()> {
        check(unsafe { sys::accel_scheduler_load_state_dict(self.as_raw(), state_dict.as_raw()) }).map(drop)
    }
}

/// NaN is no factor: the library refuses the step.
unsafe extern "C" fn call_factor<F>(step: i64, data: *mut c_void) -> f64
where
    F: FnMut(i64) -> CallbackResult<f64>,
{
    callback::run_for(f64::NAN, || closure::<Exclusive<F>>(data).with(|factor| factor(step)))
}
