// SPDX-License-Identifier: Apache-2.0
//! Random numbers.
use crate::call::made;
use crate::error::{check, Result};
use crate::handle::handle;
use crate::tensor::Tensor;
use accel_sys as sys;
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
