// SPDX-License-Identifier: Apache-2.0
//! Tensors for other systems, and from them, without a copy.
use crate::call::made;
use crate::error::{check, Error, Result};
use crate::tensor::Tensor;
use accel_sys as sys;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

macro_rules! dlpack {
    ($($(#[$text:meta])* $name:ident($raw:ident), $to:ident, $from:ident;)*) => {$(
        $(#[$text])*
        #[derive(Debug)]
        pub struct $name(NonNull<sys::$raw>);

        // SAFETY: the owner may be any thread; there are no shared functions.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// Gives the struct to another system, which calls its deleter.
            pub fn into_raw(self) -> *mut c_void {
                let raw = self.0.as_ptr();
                std::mem::forget(self);
                raw.cast()
            }

            /// Takes over a struct of another system.
            ///
            /// # Safety
            /// It is a valid struct of that name of DLPack that nobody else owns, and whose memory nobody else writes
            /// while the program has a slice of it.
            pub unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
                $name(raw.cast())
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // The library knows how to end its life: it runs the deleter, also when it does not know the tensor.
                let mut tensor = ptr::null_mut();
                // SAFETY: the struct is valid and owned, and is not used afterwards.
                unsafe {
                    if sys::$from(self.0.as_ptr(), &mut tensor) == sys::ACCEL_OK {
                        sys::accel_tensor_release(tensor);
                    }
                }
            }
        }

        impl TryFrom<&Tensor> for $name {
            type Error = Error;

            fn try_from(tensor: &Tensor) -> Result<Self> {
                let mut out = ptr::null_mut();
                // SAFETY: the handle is alive, and what is written belongs to the caller.
                check(unsafe { sys::$to(tensor.as_raw(), &mut out) })?;
                Ok($name(NonNull::new(out).expect("a call that succeeded gives a tensor")))
            }
        }

        impl TryFrom<$name> for Tensor {
            type Error = Error;

            fn try_from(tensor: $name) -> Result<Self> {
                let raw = tensor.into_raw();
                // SAFETY: the struct is valid and owned; the call takes it in any case.
                made(|out| unsafe { sys::$from(raw.cast(), out) })
            }
        }
    )*};
}

dlpack! {
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
    DlPack(DLManagedTensorVersioned), accel_tensor_to_dlpack, accel_tensor_from_dlpack;
    /// The form for systems that know DLPack before version 1: a `DLManagedTensor`. It is made of a tensor, and becomes
    /// one, by `try_from`.
    DlPackUnversioned(DLManagedTensor), accel_tensor_to_dlpack_unversioned, accel_tensor_from_dlpack_unversioned;
}

impl Tensor {
    /// Lends it to another system. It must not require gradients.
    pub fn to_dlpack(&self) -> Result<DlPack> {
        self.try_into()
    }

    /// Takes the tensor of another system. Its deleter runs when the memory is no longer needed.
    pub fn from_dlpack(tensor: DlPack) -> Result<Self> {
        tensor.try_into()
    }
}
