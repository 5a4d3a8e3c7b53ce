// SPDX-License-Identifier: Apache-2.0
//! Schedulers: what drives learning rates.
use crate::call::made;
use crate::error::Result;
use crate::handle::{array, handle};
use accel_sys as sys;

handle! {
    /// Drives the learning rates of an optimizer. One thread at a time uses it.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{Bias, Optimizer, Scheduler, SgdOptions, nn};
    /// let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With)?, SgdOptions::new().lr(1.0))?;
    /// let scheduler = Scheduler::lambda(&optimizer, |step| Ok(0.5f64.powi(step as i32)))?;
    /// scheduler.step()?;
    /// scheduler.step()?;
    /// assert_eq!(scheduler.last_lr(0)?, 0.25);
    /// # Ok(()) }
    /// ```
    Scheduler(accel_scheduler_t), accel_scheduler_release
}

/// Schedules.
impl Scheduler {
    /// Steps several schedulers of one optimizer together: their factors multiply.
    pub fn chained(schedulers: Vec<Scheduler>) -> Result<Self> {
        let handles: Vec<_> = schedulers.iter().map(Scheduler::as_raw).collect();
        let (first, length) = array(&handles);
        made(|out| unsafe { sys::accel_scheduler_chained(first, length, out) })
    }

    /// One scheduler after the other; the next one takes over at its milestone.
    pub fn sequential(schedulers: Vec<Scheduler>, milestones: &[i64]) -> Result<Self> {
        let handles: Vec<_> = schedulers.iter().map(Scheduler::as_raw).collect();
        let ((first, length), (steps, n_steps)) = (array(&handles), array(milestones));
        made(|out| unsafe { sys::accel_scheduler_sequential(first, length, steps, n_steps, out) })
    }
}
