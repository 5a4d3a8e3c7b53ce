//! Random numbers.
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, Result};
use crate::handle::handle;
use crate::state::State;
use crate::tensor::Tensor;
use accel_sys as sys;
use std::ffi::c_void;
use std::ptr;

handle! {
    /// Draws random numbers, those of `torch.Generator`. One thread at a time uses it.
    Generator(accel_generator_t), accel_generator_release
}

impl Generator {
    /// Where the default generator of the CPU stands.
    pub fn default_state() -> Result<Tensor> {
        made(|out| unsafe { sys::accel_generator_state(ptr::null_mut(), out) })
    }

    /// Sets the state of the default generator of the CPU.
    pub fn set_default_state(state: &Tensor) -> Result<()> {
        check(unsafe { sys::accel_generator_set_state(ptr::null_mut(), state.as_raw()) }).map(drop)
    }
}

/// Seeds.
impl State {
    /// Has [`State::set_seed`] seed one more generator: one of the program or of another crate.
    pub fn add_seed_callback<F>(&self, seed: F) -> Result<()>
    where
        F: FnMut(i64) -> CallbackResult + Send + 'static,
    {
        let (data, destroy) = hand_over(Exclusive::new(seed));
        check(unsafe { sys::accel_add_seed_callback(self.as_raw(), Some(call_seed::<F>), data, destroy) }).map(drop)
    }
}

unsafe extern "C" fn call_seed<F>(seed: i64, data: *mut c_void) -> i32
where
    F: FnMut(i64) -> CallbackResult,
{
    callback::run(|| closure::<Exclusive<F>>(data).with(|function| function(seed)))
}
