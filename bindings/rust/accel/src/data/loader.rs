// SPDX-License-Identifier: Apache-2.0
//! Batches of a dataset's items.
use super::{closures, Dataset, Sampler};
use crate::builders::DataLoaderOptions;
use crate::call::made;
use crate::callback::CallbackResult;
use crate::error::{check, Result};
use crate::handle::handle;
use crate::tree::Tree;
use crate::value::Value;
use accel_sys as sys;
use std::ops::Range;

handle! {
    /// Makes batches of a dataset's items. One thread at a time uses it.
    /// Its iterator gives the batches of an epoch, and after its `None` those of the next one:
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

    /// Lets the program cut the rows that rank 0 reads for all ranks: of the rows of all, those in the range for the rank
    /// that comes next, and the number of ranks. It runs on rank 0.
    pub fn set_slice<F>(&mut self, slice: F) -> Result<()>
    where
        F: Fn(&Value, Range<i64>, i32, i32) -> CallbackResult<Value> + Send + Sync + 'static,
    {
        let (call, data, destroy) =
            closures::slice(move |rows, begin, end, rank, ranks| slice(rows, begin..end, rank, ranks));
        check(unsafe { sys::accel_dataloader_set_slice(self.as_raw(), call, data, destroy) }).map(drop)
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
