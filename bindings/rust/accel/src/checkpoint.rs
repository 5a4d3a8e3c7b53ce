// SPDX-License-Identifier: Apache-2.0
//! Files: weights, and the whole state of a training.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, Result};
use crate::state::State;
use crate::strings::c_string;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::os::raw::c_char;
use std::ptr;

#[rustfmt::skip]
#[path = "generated/checkpoint_closures.rs"]
pub(crate) mod closures;

/// An object of the program that is a part of the training state.
pub trait Checkpoint: Send + 'static {
    /// Its state.
    fn save(&mut self) -> CallbackResult<Value>;

    /// Takes it back.
    fn load(&mut self, state: &Value) -> CallbackResult;
}

type Destroy = Option<sys::accel_destroy_fn>;

/// Checkpoints.
impl State {
    /// Adds an object of the program to the training state, under a name of its own, or under a number. Both share data,
    /// for example by `Arc`.
    pub fn register_for_checkpointing<'a, C: Checkpoint>(
        &self,
        name: impl Into<Option<&'a str>>,
        object: C,
    ) -> Result<()> {
        // SAFETY: the object is of the kind that both callbacks take.
        self.register(name.into(), object, |name, data, destroy| unsafe {
            let (save, load): (sys::accel_save_state_fn, sys::accel_load_state_fn) = (call_save::<C>, call_load::<C>);
            sys::accel_register_for_checkpointing(self.as_raw(), name, Some(save), Some(load), data, destroy)
        })
    }

    /// Adds a generator of random numbers of the program to the training state. Each rank saves its own.
    pub fn register_random_state<C: Checkpoint>(&self, name: &str, generator: C) -> Result<()> {
        // SAFETY: as above.
        self.register(Some(name), generator, |name, data, destroy| unsafe {
            let (save, load): (sys::accel_save_state_fn, sys::accel_load_state_fn) = (call_save::<C>, call_load::<C>);
            sys::accel_register_random_state(self.as_raw(), name, Some(save), Some(load), data, destroy)
        })
    }

    fn register<C: Checkpoint>(
        &self,
        name: Option<&str>,
        object: C,
        register: impl FnOnce(*const c_char, *mut c_void, Destroy) -> i32,
    ) -> Result<()> {
        let (name, (data, destroy)) = (name.map(c_string).transpose()?, hand_over(Exclusive::new(object)));
        check(register(name.as_ref().map_or(ptr::null(), |text| text.as_ptr()), data, destroy)).map(drop)
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
