//! The elements of tensors in place.
use crate::dtype::{Device, Element};
use crate::error::{Error, ErrorCode, Result};
use crate::memory::{HeldBySlice, Use};
use crate::tensor::Tensor;
use std::ops::{Deref, DerefMut};
use std::{fmt, slice};

/// The elements of a tensor where they lie, as a `&[T]`: [`Tensor::as_slice`].
pub struct Slice<'a, T> {
    elements: &'a [T],
    _held: HeldBySlice,
}

/// The elements of a tensor where they lie, as a `&mut [T]`: [`Tensor::as_mut_slice`].
pub struct SliceMut<'a, T> {
    elements: &'a mut [T],
    _held: HeldBySlice,
}

impl<T> Deref for Slice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> Deref for SliceMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> DerefMut for SliceMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}

macro_rules! as_slices {
    ($($kind:ident),*) => {$(
        impl<T: fmt::Debug> fmt::Debug for $kind<'_, T> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.elements.fmt(formatter)
            }
        }

        impl<T: PartialEq, Other: AsRef<[T]> + ?Sized> PartialEq<Other> for $kind<'_, T> {
            fn eq(&self, other: &Other) -> bool {
                self[..] == *other.as_ref()
            }
        }
    )*};
}

as_slices! { Slice, SliceMut }

/// The elements.
///
/// Slices and views are the memory itself. Tensors can share memory, so who holds some is noted while the program runs: of
/// the slices of one place there is one that changes it, or any number that read. An operator, a collective or a copy that
/// would write under a slice, or read under one that changes, fails with InvalidState, and so does a step, a backward or a
/// load while its thread holds any slice, because these do not name what they write. Nothing is locked: hold slices for a
/// moment, in a block of their own.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{ErrorCode, Tensor};
/// let mut tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
/// let mut tail = tensor.narrow(0, 1, 2)?; // shares the memory
/// {
///     let seen = tail.as_slice::<f32>()?;
///     assert_eq!(tensor.as_mut_slice::<f32>().unwrap_err().code(), ErrorCode::InvalidState);
///     assert_eq!(tensor.zero_().unwrap_err().code(), ErrorCode::InvalidState);
///     assert_eq!(seen, [2.0, 3.0]);
/// }
/// tensor.as_mut_slice::<f32>()?[1] = 5.0;
/// tail.add_scalar_(1.0)?;
/// assert_eq!(tensor.to_vec::<f32>()?, [1.0, 6.0, 4.0]);
/// # Ok(()) }
/// ```
///
/// One rule is left to the program, as in LibTorch: tensors that share memory, a parameter and its model, a dataset and the
/// tensors that it was made of, are not changed by one thread while another uses them.
impl Tensor {
    /// The elements in place.
    ///
    /// # Errors
    /// TypeMismatch for another element type; InvalidState for a tensor that is not on the CPU, or not contiguous, and for
    /// memory that something else is about to change.
    pub fn as_slice<T: Element>(&self) -> Result<Slice<'_, T>> {
        let (data, length) = self.memory::<T>()?;
        let held = HeldBySlice::new(self, Use::Read)?;
        // SAFETY: the elements are there, contiguous and of this type; the tensor keeps them, and nothing writes them
        // while they are held.
        let elements = if length == 0 { &[][..] } else { unsafe { slice::from_raw_parts(data, length) } };
        Ok(Slice { elements, _held: held })
    }

    /// The elements in place, to be changed.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`], and InvalidState for memory that something else uses.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<SliceMut<'_, T>> {
        let (data, length) = self.memory::<T>()?;
        let held = HeldBySlice::new(self, Use::Write)?;
        // SAFETY: as above, and nothing else reads them.
        let elements = if length == 0 { &mut [][..] } else { unsafe { slice::from_raw_parts_mut(data, length) } };
        Ok(SliceMut { elements, _held: held })
    }

    fn memory<T: Element>(&self) -> Result<(*mut T, usize)> {
        if !self.is_contiguous()? {
            let message = "a tensor with gaps between its elements; call contiguous() first";
            return Err(Error::new(ErrorCode::InvalidState, message));
        }
        Ok((self.elements::<T>()?, self.numel()? as usize))
    }

    /// The first element, of a tensor with any strides.
    pub(crate) fn elements<T: Element>(&self) -> Result<*mut T> {
        let (dtype, device) = (self.dtype()?, self.device()?);
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
        Ok(self.to_device(Device::Cpu)?.contiguous()?.as_slice::<T>()?.to_vec())
    }
}
