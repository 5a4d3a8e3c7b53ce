//! An order of items for each epoch.
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::Result;
use crate::handle::handle;
use accel_sys as sys;
use std::ffi::c_void;

handle! {
    /// An order of items for each epoch.
    Sampler(accel_sampler_t), accel_sampler_release
}

impl Sampler {
    /// An order that the program makes: it fills in the items of an epoch. For the same epoch it must do the same.
    pub fn custom<F>(length: i64, order: F) -> Result<Self>
    where
        F: FnMut(i64, &mut [i64]) -> CallbackResult + Send + 'static,
    {
        let (data, destroy) = hand_over(Exclusive::new(order));
        made(|out| unsafe { sys::accel_sampler_create(length, Some(call_order::<F>), data, destroy, out) })
    }

    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

unsafe extern "C" fn call_order<F>(epoch: i64, indices: *mut i64, n_indices: usize, data: *mut c_void) -> i32
where
    F: FnMut(i64, &mut [i64]) -> CallbackResult,
{
    callback::run(|| {
        let indices = if n_indices == 0 { &mut [] } else { std::slice::from_raw_parts_mut(indices, n_indices) };
        closure::<Exclusive<F>>(data).with(|order| order(epoch, indices))
    })
}
