//! Tensors.
use crate::dtype::{DType, Device, Element};
use crate::error::{check, Error, ErrorCode, Result};
use crate::generated::BackwardOptions;
use crate::handle::{array, handle};
use crate::memory;
use accel_sys as sys;
use std::ffi::c_void;
use std::{fmt, ptr, slice};

handle! {
    /// A tensor of LibTorch.
    ///
    /// Handles are owned by one variable each. Several tensors can share memory, as in LibTorch: views, [`Tensor::detach`],
    /// the parameters of a module that were asked for by name. Share a tensor between threads by reference or `Arc`.
    ///
    /// Operators are methods that are generated from LibTorch's schemas, and `+ - * /` between tensors and numbers, all
    /// with a `Result`:
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let y = (&x.matmul(&x)? + 1.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [8.0, 11.0, 16.0, 23.0]);
    /// # Ok(()) }
    /// ```
    Tensor(accel_tensor_t), accel_tensor_release
}

// SAFETY: what takes `&self` is of the kind `any` in the header.
unsafe impl Sync for Tensor {}

/// Tensors from nothing, from numbers and from memory.
impl Tensor {
    /// Elements that are not initialised.
    pub fn empty(shape: &[i64], dtype: DType, device: Device) -> Result<Self> {
        let (sizes, ndim) = array(shape);
        Self::made(|out| unsafe { sys::accel_tensor_empty(sizes, ndim, dtype.to_raw(), device.to_raw(), out) })
    }

    /// All elements equal.
    pub fn full(shape: &[i64], number: f64, dtype: DType, device: Device) -> Result<Self> {
        let (sizes, ndim) = array(shape);
        Self::made(|out| unsafe { sys::accel_tensor_full(sizes, ndim, number, dtype.to_raw(), device.to_raw(), out) })
    }

    /// Zeros.
    pub fn zeros(shape: &[i64], dtype: DType, device: Device) -> Result<Self> {
        Self::full(shape, 0.0, dtype, device)
    }

    /// Draws from the standard normal distribution with the default generator.
    pub fn randn(shape: &[i64], dtype: DType, device: Device) -> Result<Self> {
        let (sizes, ndim) = array(shape);
        Self::made(|out| unsafe { sys::accel_tensor_randn(sizes, ndim, dtype.to_raw(), device.to_raw(), out) })
    }

    /// int64 numbers from `low` to below `high`, with the default generator.
    pub fn randint(low: i64, high: i64, shape: &[i64]) -> Result<Self> {
        let (sizes, ndim) = array(shape);
        Self::made(|out| unsafe { sys::accel_tensor_randint(low, high, sizes, ndim, out) })
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
        Self::made(|out| unsafe { sys::accel_tensor_from_data(data.cast(), sizes, ndim, T::DTYPE.to_raw(), out) })
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

    /// A tensor over memory that `owner` keeps.
    ///
    /// # Safety
    /// Shape and strides must stay inside of the memory, which must live and stay in its place as long as `owner`.
    pub(crate) unsafe fn over_memory<T: Element, Owner: Send + 'static>(
        data: *mut T,
        shape: &[i64],
        strides: Option<&[i64]>,
        owner: Owner,
    ) -> Result<Self> {
        let (sizes, ndim) = array(shape);
        let strides = strides.map_or(ptr::null(), <[i64]>::as_ptr);
        let (owner, destroy) = crate::callback::hand_over(owner);
        let cpu = Device::Cpu.to_raw();
        Self::made(|out| {
            let dtype = T::DTYPE.to_raw();
            sys::accel_tensor_from_blob(data.cast(), sizes, ndim, strides, dtype, cpu, owner, destroy, out)
        })
    }
}

/// What a tensor is.
impl Tensor {
    /// The number of dimensions.
    pub fn ndim(&self) -> Result<usize> {
        let mut out = 0;
        check(unsafe { sys::accel_tensor_ndim(self.as_raw(), &mut out) })?;
        Ok(out)
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> Result<Vec<i64>> {
        self.sizes(|out| unsafe { sys::accel_tensor_shape(self.as_raw(), out) })
    }

    /// The distances between neighbours, in elements.
    pub fn strides(&self) -> Result<Vec<i64>> {
        self.sizes(|out| unsafe { sys::accel_tensor_strides(self.as_raw(), out) })
    }

    fn sizes(&self, ask: impl FnOnce(*mut *const i64) -> i32) -> Result<Vec<i64>> {
        let (ndim, mut sizes) = (self.ndim()?, ptr::null());
        check(ask(&mut sizes))?;
        // SAFETY: the tensor has so many sizes, which are copied at once.
        Ok(if ndim == 0 { Vec::new() } else { unsafe { slice::from_raw_parts(sizes, ndim) }.to_vec() })
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> Result<i64> {
        let mut out = 0;
        check(unsafe { sys::accel_tensor_numel(self.as_raw(), &mut out) })?;
        Ok(out)
    }

    /// The size in bytes.
    pub fn nbytes(&self) -> Result<usize> {
        let mut out = 0;
        check(unsafe { sys::accel_tensor_nbytes(self.as_raw(), &mut out) })?;
        Ok(out)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Result<DType> {
        let mut out = 0;
        check(unsafe { sys::accel_tensor_dtype(self.as_raw(), &mut out) })?;
        DType::from_raw(out).ok_or_else(|| Error::new(ErrorCode::Unsupported, format!("dtype {out}: not known here")))
    }

    /// Where the elements are.
    pub fn device(&self) -> Result<Device> {
        let mut out = Device::Cpu.to_raw();
        check(unsafe { sys::accel_tensor_device(self.as_raw(), &mut out) })?;
        Ok(Device::from_raw(out))
    }

    /// Whether elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> Result<bool> {
        let mut out = 0;
        check(unsafe { sys::accel_tensor_is_contiguous(self.as_raw(), &mut out) })?;
        Ok(out == 1)
    }

    /// The address of the first element.
    pub fn data_ptr(&self) -> Result<*mut c_void> {
        let mut out = ptr::null_mut();
        check(unsafe { sys::accel_tensor_data(self.as_raw(), &mut out) })?;
        Ok(out)
    }

    /// The number in a tensor of one element.
    pub fn item(&self) -> Result<f64> {
        memory::reads(&[self.into()])?;
        let mut out = 0.0;
        check(unsafe { sys::accel_tensor_item(self.as_raw(), &mut out) })?;
        Ok(out)
    }

    /// The same for integers, exact.
    pub fn item_int(&self) -> Result<i64> {
        memory::reads(&[self.into()])?;
        let mut out = 0;
        check(unsafe { sys::accel_tensor_item_int(self.as_raw(), &mut out) })?;
        Ok(out)
    }
}

/// Copies and conversions.
impl Tensor {
    /// Converts the elements; the same memory when nothing changes.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        memory::reads(&[self.into()])?;
        let device = self.device()?.to_raw();
        Self::made(|out| unsafe { sys::accel_tensor_to(self.as_raw(), dtype.to_raw(), device, 0, out) })
    }

    /// Moves to a device; the same memory when nothing changes.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        memory::reads(&[self.into()])?;
        Self::made(|out| unsafe { sys::accel_tensor_to(self.as_raw(), sys::ACCEL_UNSET, device.to_raw(), 0, out) })
    }

    /// Copies the elements of another tensor, converting and broadcasting them.
    pub fn copy_from(&mut self, source: &Tensor) -> Result<()> {
        memory::reads(&[source.into()])?;
        memory::writes((&*self).into())?;
        check(unsafe { sys::accel_tensor_copy(self.as_raw(), source.as_raw()) }).map(drop)
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

    /// A copy with its own memory.
    pub fn deep_clone(&self) -> Result<Self> {
        memory::reads(&[self.into()])?;
        Self::made(|out| unsafe { sys::accel_tensor_clone(self.as_raw(), out) })
    }

    /// The same memory outside of autograd.
    pub fn detach(&self) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_tensor_detach(self.as_raw(), out) })
    }

    /// Row-major without gaps; the same memory if it was already.
    pub fn contiguous(&self) -> Result<Self> {
        memory::reads(&[self.into()])?;
        Self::made(|out| unsafe { sys::accel_tensor_contiguous(self.as_raw(), out) })
    }
}

/// Gradients.
impl Tensor {
    /// Whether gradients are kept for it.
    pub fn requires_grad(&self) -> Result<bool> {
        let mut out = 0;
        check(unsafe { sys::accel_tensor_requires_grad(self.as_raw(), &mut out) })?;
        Ok(out == 1)
    }

    /// Sets whether gradients are kept.
    pub fn set_requires_grad(&mut self, requires_grad: bool) -> Result<()> {
        check(unsafe { sys::accel_tensor_set_requires_grad(self.as_raw(), requires_grad.into()) }).map(drop)
    }

    /// The gradient of a leaf, if it has one.
    pub fn grad(&self) -> Result<Option<Tensor>> {
        let mut out = ptr::null_mut();
        check(unsafe { sys::accel_tensor_grad(self.as_raw(), &mut out) })?;
        // SAFETY: what was written belongs to the caller.
        Ok((!out.is_null()).then(|| unsafe { Tensor::from_raw(out) }))
    }

    /// Back-propagates from a scalar without any scaling. Training uses [`State::backward`](crate::State::backward).
    pub fn backward(&mut self) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_tensor_backward(self.as_raw(), ptr::null()) }).map(drop)
    }

    /// The same with options, from a tensor of any shape if the options have a gradient for it.
    pub fn backward_with(&mut self, options: BackwardOptions) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_tensor_backward(self.as_raw(), &options.0) }).map(drop)
    }

    /// Mean cross entropy of class scores `[..., classes]`, with gradients; labels of -100 are left out.
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        memory::reads(&[self.into(), labels.into()])?;
        Self::made(|out| unsafe { sys::accel_cross_entropy(self.as_raw(), labels.as_raw(), out) })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dtype(), self.shape(), self.device()) {
            (Ok(dtype), Ok(shape), Ok(device)) => write!(formatter, "Tensor({dtype}, {shape:?}, {device:?})"),
            _ => formatter.write_str("Tensor(of a kind that is not known here)"),
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
