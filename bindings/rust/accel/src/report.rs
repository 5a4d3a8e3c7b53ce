//! Where the time of the loop goes.
use crate::error::Result;
use crate::state::State;
use crate::value::Value;
use accel_sys as sys;

impl State {
    /// Where the time of the steps went: `{"steps": 12, "latest": {...}, "mean": {...}}`, both of seconds for "data",
    /// "forward", "backward", "communication", "optimizer", "other" and "total". With `reset` the next mean begins here.
    pub fn step_report(&self, reset: bool) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_step_report(self.as_raw(), reset.into(), out) })
    }
}
