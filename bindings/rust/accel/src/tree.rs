//! Functions on every tensor of a value.
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::dtype::Device;
use crate::error::{Error, ErrorCode, Result};
use crate::handle::Lent;
use crate::memory;
use crate::strings::Texts;
use crate::tensor::Tensor;
use crate::value::{Arg, Value};
use accel_sys as sys;
use std::ffi::c_void;
use std::ops::Range;

/// A tensor, or a value with tensors in it: what collectives take and give back.
pub trait Tree: Sized + private::Sealed {
    /// It as an argument.
    fn as_arg(&self) -> Arg<'_>;

    /// It from what a call gave.
    ///
    /// # Errors
    /// TypeMismatch for another kind of value.
    fn from_value(value: Value) -> Result<Self>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for crate::Tensor {}
    impl Sealed for crate::Value {}
    impl Sealed for () {}
}

impl Tree for Tensor {
    fn as_arg(&self) -> Arg<'_> {
        self.into()
    }

    fn from_value(value: Value) -> Result<Self> {
        value.into_tensor()
    }
}

impl Tree for Value {
    fn as_arg(&self) -> Arg<'_> {
        self.into()
    }

    fn from_value(value: Value) -> Result<Self> {
        Ok(value)
    }
}

/// Of calls without a result.
impl Tree for () {
    fn as_arg(&self) -> Arg<'_> {
        Arg::none()
    }

    fn from_value(value: Value) -> Result<Self> {
        if value.is_none() {
            return Ok(());
        }
        Err(Error::new(ErrorCode::TypeMismatch, format!("value {value:?}: expected none")))
    }
}

impl Value {
    /// The same tree with a function applied to each tensor. Leaves that are no tensor stay; with `error_on_other_type`
    /// they are a TypeMismatch.
    pub fn map_tensors<F>(&self, error_on_other_type: bool, function: F) -> Result<Value>
    where
        F: FnMut(&Tensor) -> CallbackResult<Tensor> + Send + 'static,
    {
        let (data, destroy) = hand_over(Exclusive::new(function));
        let strict = error_on_other_type.into();
        made(|out| unsafe { sys::accel_recursively_apply(self.as_raw(), strict, Some(apply::<F>), data, destroy, out) })
    }

    /// Views of these rows of each tensor; negative numbers count from the end.
    pub fn slice_rows(&self, rows: Range<i64>) -> Result<Value> {
        made(|out| unsafe { sys::accel_slice_tensors(self.as_raw(), rows.start, rows.end, out) })
    }

    /// Each tensor on a device; the values of `skip_keys` stay.
    pub fn to_device(&self, device: Device, skip_keys: &[&str]) -> Result<Value> {
        memory::reads(self)?;
        let (keys, device) = (Texts::new(skip_keys)?, device.to_raw());
        made(|out| unsafe { sys::accel_send_to_device(self.as_raw(), device, 0, keys.as_ptr(), keys.len(), out) })
    }
}

unsafe extern "C" fn apply<F>(
    tensor: *mut sys::accel_tensor_t,
    out: *mut *mut sys::accel_tensor_t,
    data: *mut c_void,
) -> i32
where
    F: FnMut(&Tensor) -> CallbackResult<Tensor>,
{
    callback::run(|| {
        let tensor = Lent::new(Tensor::from_raw(tensor));
        let made = closure::<Exclusive<F>>(data).with(|function| function(&tensor))?;
        *out = made.as_raw();
        std::mem::forget(made); // the library owns it now
        Ok(())
    })
}
