//! Device maps: what the regular functions leave over.
use crate::builders::DeviceMapOptions;
use crate::call::{made, Made};
use crate::error::Result;
use crate::memory;
use crate::module::Model;
use crate::options::optional;
use crate::value::Value;
use accel_sys as sys;
use std::ptr;

/// Fills one device after the other with the modules of a model in their order
/// ([`accel_infer_auto_device_map`](sys::accel_infer_auto_device_map)).
///
/// Gives: The device map, and why each part is where it is.
///
/// # Errors
/// OutOfMemory without the disk, with the module that does not fit; NotFound, InvalidArgument, TypeMismatch.
pub fn infer_auto_device_map(
    model: &Model,
    max_memory: Option<&Value>,
    options: impl Into<Option<DeviceMapOptions>>,
) -> Result<(Value, Value)> {
    let options = options.into();
    let options = optional(&options)?;
    memory::reads(&max_memory)?;
    let mut map = Value::EMPTY;
    let memory = max_memory.map_or(ptr::null(), Value::as_raw);
    let explanation =
        made(|out| unsafe { sys::accel_infer_auto_device_map(model.as_raw(), memory, options, &mut map, out) })?;
    // SAFETY: the call succeeded, so it has written both.
    Ok((unsafe { Value::of(map) }?, explanation))
}
