// SPDX-License-Identifier: Apache-2.0
//! Tensors from and as arrays of the crate `ndarray`, without a copy.
use crate::dtype::Element;
use crate::error::{Error, ErrorCode, Result};
use crate::memory::{lend, Access};
use crate::tensor::Tensor;
use ndarray::{Array, ArrayViewD, ArrayViewMutD, Dimension, IxDyn, ShapeBuilder};

impl Tensor {
    /// A tensor in the memory of an array, which is not copied and freed with the last tensor that shares it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use accel::Tensor;
    /// let array = ndarray::arr2(&[[1.0f32, 2.0], [3.0, 4.0]]);
    /// let memory = array.as_ptr();
    /// let mut tensor = Tensor::from_array(array)?;
    /// assert_eq!(tensor.data_ptr()?.cast(), memory as *mut f32);
    /// tensor.with_array_mut::<f32, _>(|mut array| array[[0, 1]] = 5.0)?;
    /// assert_eq!(tensor.with_array::<f32, _>(|array| array.sum())?, 13.0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Unsupported for an array with a negative stride.
    pub fn from_array<T: Element, D: Dimension + 'static>(array: Array<T, D>) -> Result<Self> {
        let mut array = array;
        let shape: Vec<i64> = array.shape().iter().map(|size| *size as i64).collect();
        let strides: Vec<i64> = array.strides().iter().map(|stride| *stride as i64).collect();
        if strides.iter().any(|stride| *stride < 0) {
            let message = format!("strides {strides:?}: expected none below 0; copy the array first");
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        let data = array.as_mut_ptr();
        // SAFETY: shape and strides are those of the array, whose elements stay where they are while it moves.
        unsafe { Self::over_memory(data, &shape, Some(&strides), array) }
    }

    /// Lends the elements, with any strides, to a closure. The rules of [`Tensor::with_slice`] hold here too.
    ///
    /// # Errors
    /// TypeMismatch for another element type; InvalidState for a tensor that is not on the CPU, and for memory that
    /// something else is about to change.
    pub fn with_array<T: Element, R>(&self, look: impl FnOnce(ArrayViewD<'_, T>) -> R) -> Result<R> {
        Self::with_arrays(&[self], |views| look(views[0].view()))
    }

    /// Lends the elements of several tensors at once.
    ///
    /// # Errors
    /// Same as [`Tensor::with_array`].
    pub fn with_arrays<T: Element, R>(tensors: &[&Tensor], look: impl FnOnce(&[ArrayViewD<'_, T>]) -> R) -> Result<R> {
        let parts = tensors.iter().map(|tensor| Ok((tensor.first::<T>()?, tensor.layout()?)));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        lend(tensors.iter().filter_map(|tensor| tensor.bytes()), Access::Read, || {
            let parts = parts.into_iter();
            // SAFETY: the layouts are those of the elements, which are of this type; nothing writes them while they are lent.
            let views = parts.map(|(data, layout)| unsafe { ArrayViewD::from_shape_ptr(layout, data) });
            look(&views.collect::<Vec<_>>())
        })
    }

    /// Lends the elements to a closure that changes them.
    ///
    /// # Errors
    /// Same as [`Tensor::with_array`], and InvalidState for a tensor whose elements share memory, as one that was expanded,
    /// and for memory that something else uses.
    pub fn with_array_mut<T: Element, R>(&mut self, change: impl FnOnce(ArrayViewMutD<'_, T>) -> R) -> Result<R> {
        let (data, layout) = (self.first::<T>()?, self.layout()?);
        let (shape, strides) = (self.shape(), self.strides()?);
        if overlaps(&shape, &strides) {
            let message =
                format!("shape {shape:?} with strides {strides:?}: elements share memory; expected own memory");
            return Err(Error::new(ErrorCode::InvalidState, message));
        }
        // SAFETY: as above; no two elements are in one place, and nothing else reads them.
        lend(self.bytes(), Access::Write, || change(unsafe { ArrayViewMutD::from_shape_ptr(layout, data) }))
    }

    /// Without elements there may be no memory, and a view needs a pointer.
    fn first<T: Element>(&self) -> Result<*mut T> {
        let data = self.elements::<T>()?;
        Ok(if data.is_null() { std::ptr::NonNull::dangling().as_ptr() } else { data })
    }

    fn layout(&self) -> Result<ndarray::StrideShape<IxDyn>> {
        let shape: Vec<usize> = self.shape().iter().map(|size| *size as usize).collect();
        let strides: Vec<usize> = self.strides()?.iter().map(|stride| *stride as usize).collect();
        Ok(IxDyn(&shape).strides(IxDyn(&strides)))
    }
}

/// Whether two elements may lie in the same place: a stride does not lead out of what the smaller ones span.
fn overlaps(shape: &[i64], strides: &[i64]) -> bool {
    let mut dims: Vec<(i64, i64)> = strides.iter().copied().zip(shape.iter().copied()).collect();
    dims.retain(|(_, size)| *size > 1);
    dims.sort_unstable();
    let mut span = 0;
    dims.into_iter().any(|(stride, size)| {
        let inside = stride <= span;
        span += stride * (size - 1);
        inside
    })
}
