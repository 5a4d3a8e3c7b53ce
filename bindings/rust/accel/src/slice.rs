// SPDX-License-Identifier: Apache-2.0
//! The elements of tensors in place.
use crate::dtype::{Device, Element};
use crate::error::{Error, ErrorCode, Result};
use crate::memory::{lend, Access};
use crate::tensor::Tensor;
use std::slice;

/// The elements.
///
/// Slices and views are the memory itself, lent to a closure. Tensors can share memory, so of what is lent of one place at a time there
/// is one that changes it, or any number that read, in all threads. An operator, a collective or a copy inside of a closure
/// that would write under its slice, or read under one that changes, fails with InvalidState, and so does a step, a backward
/// or a load, because these do not name what they write.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{ErrorCode, Tensor};
/// let mut tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
/// let mut tail = tensor.narrow(0, 1, 2)?; // shares the memory
/// tail.with_slice::<f32, _>(|seen| {
///     assert_eq!(tensor.with_slice_mut(|all: &mut [f32]| all.fill(0.0)).unwrap_err().code(), ErrorCode::InvalidState);
///     assert_eq!(tensor.zero_().unwrap_err().code(), ErrorCode::InvalidState);
///     assert_eq!(seen, [2.0, 3.0]);
/// })?;
/// tensor.with_slice_mut(|all: &mut [f32]| all[1] = 5.0)?;
/// tail.add_scalar_(1.0)?;
/// assert_eq!(tensor.to_vec::<f32>()?, [1.0, 6.0, 4.0]);
/// # Ok(()) }
/// ```
/// The slice does not leave the closure:
///
/// ```compile_fail
/// let tensor = accel::Tensor::from_vec(vec![1.0f32, 2.0], &[2]).unwrap();
/// let kept: &[f32] = tensor.with_slice(|seen| seen).unwrap();
/// ```
///
/// One rule is left to the program, as in LibTorch: tensors that share memory, a parameter and its model, a dataset and the
/// tensors that it was made of, are not changed by one thread while another uses them.
impl Tensor {
    /// Lends the elements to a closure.
    ///
    /// # Errors
    /// TypeMismatch for another element type; InvalidState for a tensor that is not on the CPU, or not contiguous, and for
    /// memory that something else is about to change.
    pub fn with_slice<T: Element, R>(&self, look: impl FnOnce(&[T]) -> R) -> Result<R> {
        let (data, length) = self.memory::<T>()?;
        lend(self.bytes(), Access::Read, || {
            // SAFETY: the elements are there, contiguous and of this type; the tensor keeps them, and nothing writes them
            // while they are lent.
            look(if length == 0 { &[] } else { unsafe { slice::from_raw_parts(data, length) } })
        })
    }

    /// Lends the elements to a closure that changes them.
    ///
    /// # Errors
    /// Same as [`Tensor::with_slice`], and InvalidState for memory that something else uses.
    pub fn with_slice_mut<T: Element, R>(&mut self, change: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        let (data, length) = self.memory::<T>()?;
        lend(self.bytes(), Access::Write, || {
            // SAFETY: as above, and nothing else reads them.
            change(if length == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(data, length) } })
        })
    }

    fn memory<T: Element>(&self) -> Result<(*mut T, usize)> {
        if !self.is_contiguous()? {
            let message = "a tensor with gaps between its elements; call contiguous() first";
            return Err(Error::new(ErrorCode::InvalidState, message));
        }
        Ok((self.elements::<T>()?, self.numel() as usize))
    }

    /// The first element, of a tensor with any strides.
    pub(crate) fn elements<T: Element>(&self) -> Result<*mut T> {
        let (dtype, device) = (self.dtype(), self.device());
        if dtype != T::DTYPE {
            let message = format!("elements of {dtype}: asked for {}", T::DTYPE);
            return Err(Error::new(ErrorCode::TypeMismatch, message));
        }
        if device != Device::Cpu {
            let message = format!("elements on {device:?}: expected a tensor on the CPU; call to_device() first");
            return Err(Error::new(ErrorCode::InvalidState, message));
        }
        Ok(self.data_ptr()?.cast())
    }

    /// A copy of the elements, row-major, from any device.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.to_device(Device::Cpu)?.contiguous()?.with_slice(<[T]>::to_vec)
    }
}
