//! How models are trained: exchange of gradients, loss scale, precision.
use crate::error::{check, Result};
use crate::generated::{AutocastOptions, GradScalerOptions, GradientAccumulationOptions};
use crate::state::State;
use crate::value::Value;
use accel_sys as sys;

/// Accumulation, at any time.
impl State {
    /// Changes how micro-batches are put together, from the next one on; the same on all ranks.
    pub fn set_gradient_accumulation(&self, options: GradientAccumulationOptions) -> Result<()> {
        check(unsafe { sys::accel_set_gradient_accumulation(self.as_raw(), &options.0) }).map(drop)
    }

    /// How they are put together now: a map with the settings by name.
    pub fn gradient_accumulation(&self) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_gradient_accumulation(self.as_raw(), out) })
    }
}

/// Settings for all that is prepared; before anything is.
impl State {
    /// Sets how losses are scaled.
    pub fn set_grad_scaler(&self, options: GradScalerOptions) -> Result<()> {
        check(unsafe { sys::accel_set_grad_scaler(self.as_raw(), &options.0) }).map(drop)
    }

    /// Sets the autocast of prepared models, and of regions that give no options.
    pub fn set_autocast(&self, options: AutocastOptions) -> Result<()> {
        check(unsafe { sys::accel_set_autocast(self.as_raw(), &options.0) }).map(drop)
    }
}
