//! Batches of a dataset's items.
use super::{Dataset, Sampler};
use crate::builders::DataLoaderOptions;
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult};
use crate::error::{check, Result};
use crate::handle::handle;
use crate::tree::Tree;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::ops::Range;

handle! {
    /// Makes batches of a dataset's items. One thread at a time uses it.
    ///
    /// As an iterator it gives the batches of an epoch, and after its `None` those of the next one:
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{DataLoader, DataLoaderOptions, Dataset, Tensor};
    /// let numbers = Tensor::from_slice(&[0i64, 1, 2, 3, 4], &[5])?;
    /// let mut loader = DataLoader::new(&Dataset::tensors(&[&numbers])?, DataLoaderOptions::new().batch_size(2))?;
    /// for epoch in 0..2 {
    ///     let mut rows = 0;
    ///     for batch in &mut loader {
    ///         rows += batch?.tensor_at(0)?.numel();
    ///     }
    ///     assert_eq!(rows, 5);
    /// }
    /// # Ok(()) }
    /// ```
    DataLoader(accel_dataloader_t), accel_dataloader_release
}

impl DataLoader {
    /// A loader with an order of its own.
    pub fn with_sampler(dataset: &Dataset, sampler: &Sampler, options: DataLoaderOptions) -> Result<Self> {
        let mut raw = options.0;
        raw.sampler = sampler.as_raw();
        made(|out| unsafe { sys::accel_dataloader_create(dataset.as_raw(), &raw, out) })
    }

    /// Lets the program make batches: of a list of items. With workers it runs on threads of the library.
    ///
    /// # Errors
    /// InvalidState for a loader that is prepared or at work, as for all functions of the program.
    pub fn set_collate<F>(&mut self, collate: F) -> Result<()>
    where
        F: Fn(&Value) -> CallbackResult<Value> + Send + Sync + 'static,
    {
        let (data, destroy) = hand_over(collate);
        let status =
            unsafe { sys::accel_dataloader_set_collate(self.as_raw(), Some(call_collate::<F>), data, destroy) };
        check(status).map(drop)
    }

    /// Lets the program say which items each batch of an epoch has, before they are shared between the ranks: a list that
    /// has for each batch a list of integers or an int64 tensor. For the same epoch it must do the same on every rank.
    /// `batch_size` is the size of all batches but the last; None: any.
    pub fn set_batch_sampler<F>(&mut self, batch_size: Option<i64>, batches: F) -> Result<()>
    where
        F: Fn(i64) -> CallbackResult<Value> + Send + Sync + 'static,
    {
        let (data, destroy) = hand_over(batches);
        let size = batch_size.unwrap_or(sys::ACCEL_UNSET_INT64);
        let call = Some(call_batches::<F> as sys::accel_batch_sampler_fn);
        check(unsafe { sys::accel_dataloader_set_batch_sampler(self.as_raw(), call, data, destroy, size) }).map(drop)
    }

    /// Lets the program cut the rows that rank 0 reads for all ranks: of the rows of all, those in the range for the rank
    /// that comes next, and the number of ranks. It runs on rank 0.
    pub fn set_slice<F>(&mut self, slice: F) -> Result<()>
    where
        F: Fn(&Value, Range<i64>, i32, i32) -> CallbackResult<Value> + Send + Sync + 'static,
    {
        let (data, destroy) = hand_over(slice);
        check(unsafe { sys::accel_dataloader_set_slice(self.as_raw(), Some(call_slice::<F>), data, destroy) }).map(drop)
    }
}

impl DataLoader {
    /// The batches of an epoch as a structure: a tuple, or a struct that derives [`Tree`].
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::prelude::*;
    ///
    /// #[derive(Tree)]
    /// struct Sample {
    ///     x: Tensor,
    ///     y: Tensor,
    /// }
    ///
    /// let numbers = Tensor::from_slice(&[0i64, 1, 2, 3], &[4])?;
    /// let mut loader = DataLoader::new(&Dataset::tensors(&[&numbers, &numbers])?, DataLoaderOptions::new().batch_size(2))?;
    /// for batch in loader.iter_as() {
    ///     let Sample { x, y } = batch?;
    ///     assert_eq!(x.to_vec::<i64>()?, y.to_vec::<i64>()?);
    /// }
    /// for batch in loader.iter_as::<(Tensor, Tensor)>() {
    ///     assert_eq!(batch?.1.shape(), [2]);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn iter_as<T: Tree>(&mut self) -> impl Iterator<Item = Result<T>> + '_ {
        self.map(|batch| batch.and_then(T::from_value))
    }
}

impl Iterator for DataLoader {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Value::none();
        match check(unsafe { sys::accel_dataloader_next(self.as_raw(), batch.as_mut_raw()) }) {
            Ok(sys::ACCEL_ITER_END) => None,
            Ok(_) => Some(Ok(batch)),
            Err(error) => Some(Err(error)),
        }
    }
}

unsafe extern "C" fn call_collate<F>(
    items: *const sys::accel_value_t,
    out: *mut sys::accel_value_t,
    data: *mut c_void,
) -> i32
where
    F: Fn(&Value) -> CallbackResult<Value>,
{
    callback::run(|| {
        let items = Value::borrowed(items).ok_or("a batch without items")?;
        *out = closure::<F>(data)(items)?.into_raw();
        Ok(())
    })
}

unsafe extern "C" fn call_batches<F>(epoch: i64, out: *mut sys::accel_value_t, data: *mut c_void) -> i32
where
    F: Fn(i64) -> CallbackResult<Value>,
{
    callback::run(|| {
        *out = closure::<F>(data)(epoch)?.into_raw();
        Ok(())
    })
}

unsafe extern "C" fn call_slice<F>(
    rows: *const sys::accel_value_t,
    begin: i64,
    end: i64,
    process_index: i32,
    num_processes: i32,
    out: *mut sys::accel_value_t,
    data: *mut c_void,
) -> i32
where
    F: Fn(&Value, Range<i64>, i32, i32) -> CallbackResult<Value>,
{
    callback::run(|| {
        let rows = Value::borrowed(rows).ok_or("a slice without rows")?;
        *out = closure::<F>(data)(rows, begin..end, process_index, num_processes)?.into_raw();
        Ok(())
    })
}
