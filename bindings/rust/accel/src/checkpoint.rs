//! Files: weights, and the whole state of a training.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, Result};
use crate::handle::{c_path, c_string};
use crate::memory;
use crate::module::Model;
use crate::state::State;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::path::Path;
use std::ptr;

/// Writes a map of tensors to a safetensors file: complete under its name, or not at all.
pub fn save(tensors: &Value, metadata: Option<&Value>, path: impl AsRef<Path>) -> Result<()> {
    memory::reads(&[tensors.into()])?;
    let path = c_path(path.as_ref())?;
    let metadata = metadata.map_or(ptr::null(), Value::as_raw);
    check(unsafe { sys::accel_save(tensors.as_raw(), metadata, path.as_ptr()) }).map(drop)
}

/// Reads a safetensors file after checking its header: a map of tensors.
pub fn load(path: impl AsRef<Path>) -> Result<Value> {
    let path = c_path(path.as_ref())?;
    Value::made(|out| unsafe { sys::accel_load(path.as_ptr(), out) })
}

/// The metadata of a safetensors file: a map of texts.
pub fn load_metadata(path: impl AsRef<Path>) -> Result<Value> {
    let path = c_path(path.as_ref())?;
    Value::made(|out| unsafe { sys::accel_load_metadata(path.as_ptr(), out) })
}

/// An object of the program that is a part of the training state.
pub trait Checkpoint: Send + 'static {
    /// Its state.
    fn save(&mut self) -> CallbackResult<Value>;

    /// Takes it back.
    fn load(&mut self, state: &Value) -> CallbackResult;
}

/// Checkpoints.
impl State {
    /// Writes a model's weights as `folder/model.safetensors` on the main process; other ranks return at once.
    pub fn save_model(&self, model: &Model, folder: impl AsRef<Path>) -> Result<()> {
        let folder = c_path(folder.as_ref())?;
        check(unsafe { sys::accel_save_model(self.as_raw(), model.as_raw(), folder.as_ptr()) }).map(drop)
    }

    /// As [`save`], on the main process, or on that of each host; the other ranks return at once.
    pub fn save(
        &self,
        tensors: &Value,
        metadata: Option<&Value>,
        path: impl AsRef<Path>,
        on_each_node: bool,
    ) -> Result<()> {
        memory::reads(&[tensors.into()])?;
        let path = c_path(path.as_ref())?;
        let metadata = metadata.map_or(ptr::null(), Value::as_raw);
        let (state, tensors, on_each_node) = (self.as_raw(), tensors.as_raw(), on_each_node.into());
        check(unsafe { sys::accel_save_on_main_process(state, tensors, metadata, path.as_ptr(), on_each_node) })
            .map(drop)
    }

    /// Writes everything that is prepared, so that training can go on bit for bit. All ranks must call.
    pub fn save_state(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = c_path(folder.as_ref())?;
        check(unsafe { sys::accel_save_state(self.as_raw(), folder.as_ptr()) }).map(drop)
    }

    /// Reads it back into the prepared objects, which must be the same. All ranks must call.
    pub fn load_state(&self, folder: impl AsRef<Path>) -> Result<()> {
        memory::writes_anything()?;
        let folder = c_path(folder.as_ref())?;
        check(unsafe { sys::accel_load_state(self.as_raw(), folder.as_ptr()) }).map(drop)
    }

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
