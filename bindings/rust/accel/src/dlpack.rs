//! Tensors for other systems, and from them, without a copy.
use crate::error::{check, Result};
use crate::tensor::Tensor;
use accel_sys as sys;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// A tensor that is lent to, or comes from, another system: a `DLManagedTensorVersioned` of DLPack 1.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{DlPack, Tensor};
/// let tensor = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
/// let memory = tensor.data_ptr()?;
/// let lent: DlPack = tensor.to_dlpack()?;
/// let back = Tensor::from_dlpack(lent)?;
/// assert_eq!(back.data_ptr()?, memory);
/// # Ok(()) }
/// ```
pub struct DlPack(NonNull<sys::DLManagedTensorVersioned>);

// The owner may be any thread; there are no shared functions.
unsafe impl Send for DlPack {}
unsafe impl Sync for DlPack {}

impl DlPack {
    /// Gives the struct to another system, which calls its deleter.
    pub fn into_raw(self) -> *mut c_void {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw.cast()
    }

    /// Takes over a struct of another system.
    ///
    /// # Safety
    /// It is a valid `DLManagedTensorVersioned` that nobody else owns.
    pub unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        DlPack(raw.cast())
    }
}

impl Drop for DlPack {
    fn drop(&mut self) {
        // The library knows how to end its life: it runs the deleter, also when it does not know the tensor.
        let mut tensor = ptr::null_mut();
        unsafe {
            if sys::accel_tensor_from_dlpack(self.0.as_ptr(), &mut tensor) == sys::ACCEL_OK {
                sys::accel_tensor_release(tensor);
            }
        }
    }
}

impl Tensor {
    /// Lends it to another system. It must not require gradients.
    pub fn to_dlpack(&self) -> Result<DlPack> {
        let mut out = ptr::null_mut();
        check(unsafe { sys::accel_tensor_to_dlpack(self.as_raw(), &mut out) })?;
        Ok(DlPack(NonNull::new(out).expect("a call that succeeded gives a tensor")))
    }

    /// Takes the tensor of another system. Its deleter runs when the memory is no longer needed.
    pub fn from_dlpack(tensor: DlPack) -> Result<Self> {
        let raw = tensor.into_raw();
        Self::made(|out| unsafe { sys::accel_tensor_from_dlpack(raw.cast(), out) })
    }
}
