// SPDX-License-Identifier: Apache-2.0
//! Tensors.
use crate::call::{made, Made};
use crate::dtype::{DType, Device, Element};
use crate::error::{check, Error, ErrorCode, Result};
use crate::handle::{array, handle};
use crate::memory::{self, Memory};
use accel_sys as sys;
use std::ffi::c_void;
use std::ops::Range;
use std::{fmt, ptr, slice};

handle! {
    /// A tensor of LibTorch.
    ///
    /// Handles are owned by one variable each. Several tensors can share memory, as in LibTorch: views, [`Tensor::detach`],
    /// the parameters of a module that were asked for by name. Share a tensor between threads by reference or `Arc`.
    ///
    /// Operators are methods that are generated from LibTorch's schemas, and `+ - * /` between tensors, results of others and
    /// numbers, all with a `Result`:
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let y = (&x.matmul(&x)? + 1.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [8.0, 11.0, 16.0, 23.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// The language has no place for operators of two results, of a result and a number, and for `-` of a result ("cannot add
    /// `Result<Tensor, Error>` to `Result<Tensor, Error>`"): none of them is a type of this crate. A `?` on one side makes it a tensor:
    ///
    /// ```compile_fail,E0369
    /// # fn main() -> accel::Result<()> {
    /// # let x = accel::Tensor::scalar(1.0f32)?;
    /// let y = ((&x + 1.0) * (&x - 1.0))?;
    /// # Ok(()) }
    /// ```
    ///
    /// ```compile_fail,E0600
    /// # fn main() -> accel::Result<()> {
    /// # let x = accel::Tensor::scalar(1.0f32)?;
    /// let y = (-(&x + 1.0))?; // cannot apply unary operator `-`
    /// # Ok(()) }
    /// ```
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// # let x = accel::Tensor::scalar(3.0f32)?;
    /// let y = ((&x + 1.0)? * (&x - 1.0))?;
    /// let z = (-(&x + 1.0)? - &x)?;
    /// # assert_eq!((y.item()?, z.item()?), (8.0, -7.0));
    /// # Ok(()) }
    /// ```
    ///
    /// `x += y` could not say that it failed: `x.add_(&y, 1)?`, `x.mul_scalar_(0.5)?` and their like change a tensor in place.
    ///
    /// ```compile_fail,E0368
    /// # fn main() -> accel::Result<()> {
    /// # let mut x = accel::Tensor::scalar(1.0f32)?;
    /// # let y = accel::Tensor::scalar(2.0f32)?;
    /// x += &y; // binary assignment operation `+=` cannot be applied
    /// # Ok(()) }
    /// ```
    Tensor(accel_tensor_t), accel_tensor_release, it has a Debug of its own
}

// SAFETY: what takes `&self` is of the kind `any` in the header.
unsafe impl Sync for Tensor {}

/// Tensors from nothing, from numbers and from memory.
impl Tensor {
    /// Zeros.
    pub fn zeros(shape: &[i64], dtype: DType, device: Device) -> Result<Self> {
        Self::full(shape, 0.0, dtype, device)
    }

    /// Ones.
    pub fn ones(shape: &[i64], dtype: DType, device: Device) -> Result<Self> {
        Self::full(shape, 1.0, dtype, device)
    }

    /// A tensor without dimensions.
    pub fn scalar<T: Element>(number: T) -> Result<Self> {
        Self::from_slice(&[number], &[])
    }

    /// A copy of row-major elements.
    ///
    /// # Errors
    /// ShapeMismatch when the shape has another number of elements.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[i64]) -> Result<Self> {
        fits(elements.len(), shape)?;
        let ((data, _), (sizes, ndim)) = (array(elements), array(shape));
        made(|out| unsafe { sys::accel_tensor_from_data(data.cast(), sizes, ndim, T::DTYPE.to_raw(), out) })
    }

    /// A tensor in the memory of a vector, which is not copied and freed with the last tensor that shares it.
    ///
    /// # Errors
    /// ShapeMismatch when the shape has another number of elements.
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: &[i64]) -> Result<Self> {
        fits(elements.len(), shape)?;
        let mut elements = elements;
        let data = elements.as_mut_ptr();
        // SAFETY: the shape has as many elements as the vector, which stays where it is while it moves.
        unsafe { Self::over_memory(data, shape, None, elements) }
    }

    /// A tensor over elements that somebody else keeps, which are not copied.
    ///
    /// # Errors
    /// ShapeMismatch when the shape has another number of elements.
    ///
    /// # Safety
    /// The elements must outlive this tensor and all that share its memory, and nothing else may use them while the library does.
    pub unsafe fn over_slice<T: Element>(elements: &mut [T], shape: &[i64]) -> Result<Self> {
        fits(elements.len(), shape)?;
        Self::over_memory(elements.as_mut_ptr(), shape, None, ())
    }

    /// A tensor over memory of another framework, on any device, which is not copied. `owner` keeps the memory, and is dropped with
    /// the last tensor that shares it, also where this fails. Without strides the elements lie one after another, row by row.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::prelude::*;
    /// let mut theirs = vec![1.0f32, 2.0, 3.0, 4.0].into_boxed_slice();
    /// let data = theirs.as_mut_ptr();
    /// // SAFETY: the box has four elements, and moves without them.
    /// let turned =
    ///     unsafe { Tensor::from_raw_parts(data.cast(), &[2, 2], Some(&[1, 2]), DType::Float32, Device::Cpu, theirs)? };
    /// assert_eq!(turned.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// InvalidArgument, ShapeMismatch.
    ///
    /// # Safety
    /// Shape and strides must stay inside of the memory, which has elements of this dtype, and lives and stays in its place on this
    /// device as long as `owner`. Nothing else may write it while the library uses it, or use it while the library writes it.
    pub unsafe fn from_raw_parts<Owner: Send + 'static>(
        data: *mut c_void,
        shape: &[i64],
        strides: Option<&[i64]>,
        dtype: DType,
        device: Device,
        owner: Owner,
    ) -> Result<Self> {
        let (owner, destroy) = crate::callback::hand_over(owner);
        if let Some(strides) = strides.filter(|strides| strides.len() != shape.len()) {
            destroy.into_iter().for_each(|destroy| destroy(owner));
            let message = format!("strides {strides:?} for shape {shape:?}: expected one for each dimension");
            return Err(Error::new(ErrorCode::ShapeMismatch, message));
        }
        let (sizes, ndim) = array(shape);
        let strides = strides.map_or(ptr::null(), <[i64]>::as_ptr);
        let (dtype, device) = (dtype.to_raw(), device.to_raw());
        made(|out| sys::accel_tensor_from_blob(data, sizes, ndim, strides, dtype, &device, owner, destroy, out))
    }

    /// # Safety
    /// Same as [`Tensor::from_raw_parts`].
    pub(crate) unsafe fn over_memory<T: Element, Owner: Send + 'static>(
        data: *mut T,
        shape: &[i64],
        strides: Option<&[i64]>,
        owner: Owner,
    ) -> Result<Self> {
        Self::from_raw_parts(data.cast(), shape, strides, T::DTYPE, Device::Cpu, owner)
    }
}

/// Properties of a tensor. These are plain values: every tensor has them.
///
/// # Panics
/// Where the library refuses every call, which is in a process that was forked off; and the shape of a nested tensor.
impl Tensor {
    /// The sizes of the dimensions.
    pub fn shape(&self) -> Vec<i64> {
        plain(self.sizes(|out| unsafe { sys::accel_tensor_shape(self.as_raw(), out) }))
    }

    /// The number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        plain(made(|out| unsafe { sys::accel_tensor_ndim(self.as_raw(), out) }))
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> i64 {
        plain(made(|out| unsafe { sys::accel_tensor_numel(self.as_raw(), out) }))
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        let number: Result<i32> = made(|out| unsafe { sys::accel_tensor_dtype(self.as_raw(), out) });
        match number {
            Err(error) if error.code() == ErrorCode::Unsupported => DType::Other,
            number => DType::known_or_other(plain(number)),
        }
    }

    /// Where it is.
    #[inline]
    pub fn device(&self) -> Device {
        plain(made(|out| unsafe { sys::accel_tensor_device(self.as_raw(), out) }))
    }
}

fn plain<T>(answer: Result<T>) -> T {
    answer.unwrap_or_else(|error| panic!("a tensor cannot be asked: {error}"))
}

/// Its memory.
impl Tensor {
    /// The distances between neighbours, in elements.
    pub fn strides(&self) -> Result<Vec<i64>> {
        self.sizes(|out| unsafe { sys::accel_tensor_strides(self.as_raw(), out) })
    }

    fn sizes(&self, ask: impl FnOnce(*mut *const i64) -> i32) -> Result<Vec<i64>> {
        let ndim: usize = made(|out| unsafe { sys::accel_tensor_ndim(self.as_raw(), out) })?;
        let mut sizes = ptr::null();
        check(ask(&mut sizes))?;
        // SAFETY: the tensor has so many sizes, which are copied at once.
        Ok(if ndim == 0 { Vec::new() } else { unsafe { slice::from_raw_parts(sizes, ndim) }.to_vec() })
    }

    /// The address of the first element.
    pub fn data_ptr(&self) -> Result<*mut c_void> {
        let mut out = ptr::null_mut();
        check(unsafe { sys::accel_tensor_data(self.as_raw(), &mut out) })?;
        Ok(out)
    }
}

/// Copies and conversions.
impl Tensor {
    /// Converts the elements; the same memory when nothing changes.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        memory::reads(self)?;
        let device = self.device().to_raw();
        made(|out| unsafe { sys::accel_tensor_to(self.as_raw(), dtype.to_raw(), &device, 0, out) })
    }

    /// Moves to a device; the same memory when nothing changes.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        memory::reads(self)?;
        made(|out| unsafe { sys::accel_tensor_to(self.as_raw(), sys::ACCEL_UNSET, &device.to_raw(), 0, out) })
    }

    /// Another owner of a tensor that a callback is lent.
    ///
    /// # Safety
    /// A tensor that is alive.
    pub(crate) unsafe fn shared_from_raw(raw: *mut sys::accel_tensor_t) -> Self {
        Self::from_raw(sys::accel_tensor_retain(raw))
    }

    /// Another owner of the same tensor.
    pub fn shallow_clone(&self) -> Self {
        // SAFETY: the handle is alive.
        unsafe { Self::shared_from_raw(self.as_raw()) }
    }
}

/// Gradients.
impl Tensor {
    /// Back-propagates from a scalar without any scaling. Training uses [`State::backward`](crate::State::backward).
    pub fn backward(&mut self) -> Result<()> {
        self.backward_with(None)
    }
}

impl Tensor {
    /// From the first to behind the last byte. None where no slice can be: on another device, without elements; and where
    /// the tensor cannot be asked, which the call itself will tell.
    pub(crate) fn bytes(&self) -> Option<Range<usize>> {
        let strides = self.strides().ok()?;
        let numel = usize::try_from(self.numel()).ok().filter(|numel| *numel > 0)?;
        if self.device() != Device::Cpu {
            return None;
        }
        let start = self.data_ptr().ok()? as usize;
        let shape = self.shape();
        let last: i64 = shape.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum();
        Some(start..start + (last as usize + 1) * (self.nbytes().ok()? / numel))
    }
}

impl Memory for Tensor {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        self.bytes().into_iter().for_each(found);
    }
}

impl Made for Option<Tensor> {
    type Raw = *mut sys::accel_tensor_t;
    const EMPTY: Self::Raw = ptr::null_mut();

    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok((!raw.is_null()).then(|| Tensor::from_raw(raw)))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No panic, wherever it is shown.
        let shape = self.sizes(|out| unsafe { sys::accel_tensor_shape(self.as_raw(), out) });
        match shape {
            Ok(shape) => write!(formatter, "Tensor({}, {shape:?}, {:?})", self.dtype(), self.device()),
            Err(error) => write!(formatter, "Tensor({})", error.message()),
        }
    }
}

fn fits(length: usize, shape: &[i64]) -> Result<()> {
    let product = shape.iter().try_fold(1i64, |product, size| product.checked_mul(*size).filter(|_| *size >= 0));
    if product == i64::try_from(length).ok() {
        return Ok(());
    }
    let message = format!("shape {shape:?} for {length} elements: expected sizes whose product is that number");
    Err(Error::new(ErrorCode::ShapeMismatch, message))
}
