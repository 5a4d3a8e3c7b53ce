// SPDX-License-Identifier: Apache-2.0
//! Models that are larger than a device: what the regular functions leave over.
use std::ptr;

use crate::builders::DispatchOptions;
use crate::call::made;
use crate::error::Result;
use crate::handle::handle;
use crate::memory;
use crate::module::Model;
use crate::options::Options;
use crate::state::State;
use crate::strings::c_string;
use crate::value::Value;
use accel_sys as sys;

handle! {
    /// A whole model that is on a device only from its forward until another one of a chain needs the device
    /// ([`cpu_offload_with_hook`](crate::cpu_offload_with_hook)).
    OffloadHook(accel_offload_hook_t), accel_offload_hook_release
}

handle! {
    /// Weights that come to a device ahead of their use.
    WeightStream(accel_weight_stream_t), accel_weight_stream_release
}

impl State {
    /// [`load_checkpoint_in_model`](crate::load_checkpoint_in_model) for all ranks: with
    /// [`broadcast_from_rank0`](DispatchOptions::broadcast_from_rank0) those of this state get what rank 0 reads.
    pub fn load_checkpoint_in_model(
        &self,
        module: &Model,
        checkpoint: &str,
        device_map: Option<&Value>,
        options: DispatchOptions,
    ) -> Result<Option<Value>> {
        let checkpoint = c_string(checkpoint)?;
        memory::reads(&device_map)?;
        // SAFETY: the options live until the call ends.
        let mut raw = unsafe { *options.as_raw()? };
        raw.state = self.as_raw();
        made(|out| unsafe {
            sys::accel_load_checkpoint_in_model(
                module.as_raw(),
                checkpoint.as_ptr(),
                device_map.map_or(ptr::null(), Value::as_raw),
                &raw,
                out,
            )
        })
    }
}
