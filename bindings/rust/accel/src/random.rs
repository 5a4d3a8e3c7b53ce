//! Random numbers.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::dtype::Device;
use crate::error::{check, Result};
use crate::handle::{c_string, handle};
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
    /// A generator of its own.
    pub fn new(seed: i64, device: Device) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_generator_create(seed, device.to_raw(), out) })
    }

    /// Starts it anew.
    pub fn set_seed(&self, seed: i64) -> Result<()> {
        check(unsafe { sys::accel_generator_set_seed(self.as_raw(), seed) }).map(drop)
    }

    /// Where it stands, as a tensor of bytes.
    pub fn state(&self) -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::accel_generator_state(self.as_raw(), out) })
    }

    /// Goes on where a generator stood.
    pub fn set_state(&self, state: &Tensor) -> Result<()> {
        check(unsafe { sys::accel_generator_set_state(self.as_raw(), state.as_raw()) }).map(drop)
    }

    /// Where the default generator of the CPU stands.
    pub fn default_state() -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::accel_generator_state(ptr::null_mut(), out) })
    }

    /// The default generator of the CPU goes on where a generator stood.
    pub fn set_default_state(state: &Tensor) -> Result<()> {
        check(unsafe { sys::accel_generator_set_state(ptr::null_mut(), state.as_raw()) }).map(drop)
    }
}

/// Seeds.
impl State {
    /// Seeds the default generators of all devices, and those of [`State::add_seed_callback`]. With `device_specific` the
    /// rank is added; with `deterministic` the process uses only algorithms whose results do not differ from run to run.
    pub fn set_seed(&self, seed: i64, device_specific: bool, deterministic: bool) -> Result<()> {
        let (specific, deterministic) = (device_specific.into(), deterministic.into());
        check(unsafe { sys::accel_set_seed(self.as_raw(), seed, specific, deterministic) }).map(drop)
    }

    /// Has [`State::set_seed`] seed one more generator: one of the program or of another crate.
    pub fn add_seed_callback<F>(&self, seed: F) -> Result<()>
    where
        F: FnMut(i64) -> CallbackResult + Send + 'static,
    {
        let (data, destroy) = hand_over(Exclusive::new(seed));
        check(unsafe { sys::accel_add_seed_callback(self.as_raw(), Some(call_seed::<F>), data, destroy) }).map(drop)
    }

    /// Gives all ranks the states of rank 0's generators: "torch", "cuda", "generator", joined by commas.
    pub fn synchronize_rng_states(&self, rng_types: &str, generator: Option<&Generator>) -> Result<()> {
        let names = c_string(rng_types)?;
        let generator = generator.map_or(ptr::null_mut(), Generator::as_raw);
        check(unsafe { sys::accel_synchronize_rng_states(self.as_raw(), names.as_ptr(), generator) }).map(drop)
    }
}

unsafe extern "C" fn call_seed<F>(seed: i64, data: *mut c_void) -> i32
where
    F: FnMut(i64) -> CallbackResult,
{
    callback::run(|| closure::<Exclusive<F>>(data).with(|function| function(seed)))
}
