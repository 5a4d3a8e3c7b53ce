//! Batches of a dataset's items.
use super::{Dataset, Sampler};
use crate::error::{check, Result};
use crate::handle::handle;
use crate::options::options;
use crate::value::Value;
use accel_sys as sys;

options! {
    /// How a loader makes batches.
    DataLoaderOptions(accel_dataloader_options_t = ACCEL_DATALOADER_OPTIONS_INIT) {
        /// Rows of one rank's batch; of all ranks' with split batches. Default 1.
        batch_size: i64,
        /// A random order that follows from seed and epoch. Default false.
        shuffle: bool,
        /// A short last batch is left out. Default false.
        drop_last: bool,
        /// Of the order. Default 0.
        seed: i64,
        /// Batches that a background thread keeps ready; 0: none. Default 2.
        prefetch: i64,
    }
}

options! {
    /// How the ranks share a loader's batches.
    DataLoaderConfig(accel_dataloader_config_t = ACCEL_DATALOADER_CONFIG_INIT) {
        /// All ranks get equally many full batches, filled with rows from the start. Default true.
        even_batches: bool,
        /// A batch is shared by the ranks. Default: as the state.
        split_batches: bool,
        /// Batches go to the state's device. Default true.
        put_on_device: bool,
        /// Without waiting for the copy. Default false.
        non_blocking: bool,
    }
}

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
    ///         rows += batch?.tensor_at(0)?.numel()?;
    ///     }
    ///     assert_eq!(rows, 5);
    /// }
    /// # Ok(()) }
    /// ```
    DataLoader(accel_dataloader_t), accel_dataloader_release
}

impl DataLoader {
    /// A loader; [`State::prepare_data_loader`](crate::State::prepare_data_loader) shares the work between ranks.
    pub fn new(dataset: &Dataset, options: DataLoaderOptions) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_dataloader_create(dataset.as_raw(), &options.0, out) })
    }

    /// A loader with an order of its own.
    pub fn with_sampler(dataset: &Dataset, sampler: &Sampler, options: DataLoaderOptions) -> Result<Self> {
        let mut raw = options.0;
        raw.sampler = sampler.as_raw();
        Self::made(|out| unsafe { sys::accel_dataloader_create(dataset.as_raw(), &raw, out) })
    }

    /// Batches of an epoch on this rank.
    pub fn num_batches(&self) -> i64 {
        unsafe { sys::accel_dataloader_length(self.as_raw()) }
    }

    /// Drops the rest of the current epoch and goes to the start of another.
    pub fn set_epoch(&mut self, epoch: i64) -> Result<()> {
        check(unsafe { sys::accel_dataloader_set_epoch(self.as_raw(), epoch) }).map(drop)
    }

    /// Where the loader stands.
    pub fn state_dict(&self) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_dataloader_state_dict(self.as_raw(), out) })
    }

    /// The next batch is the one that followed when the state was taken.
    pub fn load_state_dict(&mut self, state_dict: &Value) -> Result<()> {
        check(unsafe { sys::accel_dataloader_load_state_dict(self.as_raw(), state_dict.as_raw()) }).map(drop)
    }

    /// A new loader over the same data whose first epoch leaves out its first batches.
    pub fn skip_first_batches(&self, num_batches: i64) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_skip_first_batches(self.as_raw(), num_batches, out) })
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
