//! Files: weights, and the whole state of a training.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, Result};
use crate::state::State;
use crate::strings::c_string;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;

/// An object of the program that is a part of the training state.
pub trait Checkpoint: Send + 'static {
    /// Its state.
    fn save(&mut self) -> CallbackResult<Value>;

    /// Takes it back.
    fn load(&mut self, state: &Value) -> CallbackResult;
}

/// Checkpoints.
impl State {
    /// Adds an object of the program to the training state, under a name of its own. What both need they share, for
    /// example by `Arc`.
    pub fn register_for_checkpointing<C: Checkpoint>(&self, name: &str, object: C) -> Result<()> {
        let (name, (data, destroy)) = (c_string(name)?, hand_over(Exclusive::new(object)));
        // SAFETY: the object is of the kind that both callbacks take.
        check(unsafe {
            let (save, load): (sys::accel_save_state_fn, sys::accel_load_state_fn) = (call_save::<C>, call_load::<C>);
            let name = name.as_ptr();
            sys::accel_register_for_checkpointing(self.as_raw(), name, Some(save), Some(load), data, destroy)
        })
        .map(drop)
    }
}

unsafe extern "C" fn call_save<C: Checkpoint>(out: *mut sys::accel_value_t, data: *mut c_void) -> i32 {
    callback::run(|| {
        *out = closure::<Exclusive<C>>(data).with(C::save)?.into_raw();
        Ok(())
    })
}

unsafe extern "C" fn call_load<C: Checkpoint>(state: *const sys::accel_value_t, data: *mut c_void) -> i32 {
    callback::run(|| {
        let state = Value::borrowed(state).ok_or("a checkpoint without a state")?;
        closure::<Exclusive<C>>(data).with(|object| object.load(state))
    })
}
