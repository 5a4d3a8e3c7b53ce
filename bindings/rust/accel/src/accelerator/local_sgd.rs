// SPDX-License-Identifier: Apache-2.0
//! Local SGD: each rank trains for itself, and the weights are averaged from time to time.
use crate::builders::LocalSgdOptions;
use crate::call::made;
use crate::error::{check, Result};
use crate::memory;
use crate::module::Model;
use crate::scope::Scope;
use crate::state::State;
use crate::value::Value;
use accel_sys as sys;

/// The region in which each rank trains for itself.
#[derive(Debug)]
pub struct LocalSgd<'a>(Scope<'a>);

impl State {
    /// Inside, the weights are averaged every `steps` steps and in the end. Ranks of `gradient_group` continue to exchange
    /// gradients.
    pub fn local_sgd<'a>(
        &'a self,
        model: &Model,
        steps: i64,
        options: LocalSgdOptions,
        gradient_group: Option<&'a State>,
    ) -> Result<LocalSgd<'a>> {
        let mut raw = options.0;
        raw.gradient_group = gradient_group.map_or(std::ptr::null_mut(), |group| group.as_raw());
        Scope::begin_writing(|out| unsafe {
            sys::accel_local_sgd_begin(self.as_raw(), model.as_raw(), steps, &raw, out)
        })
        .map(LocalSgd)
    }
}

impl LocalSgd<'_> {
    /// Counts a step of the optimizer, and averages the weights when it is time to; true then.
    pub fn step(&self) -> Result<bool> {
        memory::writes_anything()?;
        let mut averaged = 0;
        check(unsafe { sys::accel_local_sgd_step(self.0.as_raw(), &mut averaged) })?;
        Ok(averaged == 1)
    }

    /// The state that a resumed run needs besides the weights.
    pub fn state_dict(&self) -> Result<Value> {
        made(|out| unsafe { sys::accel_local_sgd_state_dict(self.0.as_raw(), out) })
    }

    /// Takes it back.
    pub fn load_state_dict(&self, state_dict: &Value) -> Result<()> {
        check(unsafe { sys::accel_local_sgd_load_state_dict(self.0.as_raw(), state_dict.as_raw()) }).map(drop)
    }

    /// Averages the weights a last time.
    pub fn end(self) -> Result<()> {
        self.0.end()
    }
}
