//! Tensors from and as arrays of the crate `ndarray`, without a copy.
use crate::dtype::Element;
use crate::error::{Error, ErrorCode, Result};
use crate::memory::{HeldBySlice, Use};
use crate::tensor::Tensor;
use ndarray::{Array, ArrayViewD, ArrayViewMutD, Dimension, IxDyn, ShapeBuilder};

/// The elements of a tensor where they lie, as an array that reads them: [`Tensor::array_view`].
pub struct TensorView<'a, T> {
    array: ArrayViewD<'a, T>,
    _held: HeldBySlice,
}

/// The elements of a tensor where they lie, as an array that changes them: [`Tensor::array_view_mut`].
pub struct TensorViewMut<'a, T> {
    array: ArrayViewMutD<'a, T>,
    _held: HeldBySlice,
}

impl<T> TensorView<'_, T> {
    /// The array.
    pub fn view(&self) -> ArrayViewD<'_, T> {
        self.array.view()
    }
}

impl<T> TensorViewMut<'_, T> {
    /// The array.
    pub fn view_mut(&mut self) -> ArrayViewMutD<'_, T> {
        self.array.view_mut()
    }
}

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
    /// tensor.array_view_mut::<f32>()?.view_mut()[[0, 1]] = 5.0;
    /// assert_eq!(tensor.array_view::<f32>()?.view().sum(), 13.0);
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

    /// The elements in place, with any strides. What stands at [`Tensor::as_slice`] holds here too.
    ///
    /// # Errors
    /// TypeMismatch for another element type; InvalidState for a tensor that is not on the CPU, and for memory that
    /// something else is about to change.
    pub fn array_view<T: Element>(&self) -> Result<TensorView<'_, T>> {
        let (data, layout) = (self.elements::<T>()?, self.layout()?);
        // Without elements there may be no memory, and a view needs a pointer.
        let data = if data.is_null() { std::ptr::NonNull::dangling().as_ptr() } else { data };
        let held = HeldBySlice::new(self, Use::Read)?;
        // SAFETY: the layout is that of the elements, which are of this type; nothing writes them while they are held.
        Ok(TensorView { array: unsafe { ArrayViewD::from_shape_ptr(layout, data) }, _held: held })
    }

    /// The elements in place, to be changed.
    ///
    /// # Errors
    /// As [`Tensor::array_view`], and InvalidState for a tensor whose elements share memory, as one that was expanded, and
    /// for memory that something else uses.
    pub fn array_view_mut<T: Element>(&mut self) -> Result<TensorViewMut<'_, T>> {
        let (data, layout) = (self.elements::<T>()?, self.layout()?);
        let (shape, strides) = (self.shape()?, self.strides()?);
        if overlaps(&shape, &strides) {
            let message =
                format!("shape {shape:?} with strides {strides:?}: elements share memory; expected own memory");
            return Err(Error::new(ErrorCode::InvalidState, message));
        }
        let data = if data.is_null() { std::ptr::NonNull::dangling().as_ptr() } else { data };
        let held = HeldBySlice::new(self, Use::Write)?;
        // SAFETY: as above; no two elements are in one place, and nothing else reads them.
        Ok(TensorViewMut { array: unsafe { ArrayViewMutD::from_shape_ptr(layout, data) }, _held: held })
    }

    fn layout(&self) -> Result<ndarray::StrideShape<IxDyn>> {
        let shape: Vec<usize> = self.shape()?.iter().map(|size| *size as usize).collect();
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
