//! Where the time of the loop and the memory of tensors go.
use crate::error::{check, Result};
use crate::state::State;
use crate::value::Value;
use accel_sys as sys;

impl State {
    /// Where the time of the steps went: `{"steps": 12, "latest": {...}, "mean": {...}}`, both of seconds for "data",
    /// "forward", "backward", "communication", "optimizer", "other" and "total". With `reset` the next mean begins here.
    pub fn step_report(&self, reset: bool) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_step_report(self.as_raw(), reset.into(), out) })
    }

    /// Returns memory that is kept for later tensors to the system and to other programs; what is in use stays.
    pub fn empty_cache(&self) -> Result<()> {
        check(unsafe { sys::accel_empty_cache(self.as_raw()) }).map(drop)
    }
}

/// The memory of this process's large CPU tensors: `{"cpu": {"in_use": ..., "most_in_use": ..., "kept": ..., "reused": ...,
/// "mapped": ...}}`, with [`CpuMemory::Cached`](crate::CpuMemory::Cached). With `reset_peak` the peak begins again.
pub fn memory_report(reset_peak: bool) -> Result<Value> {
    Value::made(|out| unsafe { sys::accel_memory_report(reset_peak.into(), out) })
}
