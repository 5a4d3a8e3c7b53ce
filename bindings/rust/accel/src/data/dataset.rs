//! Datasets, and those of tensors.
use crate::error::{check_number, Result};
use crate::handle::{array, handle};
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ops::Range;

handle! {
    /// Items by number, or a stream of items. One thread at a time uses it.
    ///
    /// What needs items by number refuses a stream with [`Unsupported`](crate::ErrorCode::Unsupported).
    Dataset(accel_dataset_t), accel_dataset_release
}

impl Dataset {
    /// Rows of tensors, which share their memory; an item is a list with one row of each.
    pub fn tensors(tensors: &[&Tensor]) -> Result<Self> {
        let handles: Vec<_> = tensors.iter().map(|tensor| tensor.as_raw()).collect();
        let (first, length) = array(&handles);
        Self::made(|out| unsafe { sys::accel_dataset_tensors(first, length, out) })
    }

    /// Rows of the tensors of a map, which share their memory; an item is a map with one row of each.
    pub fn named_tensors(tensors: &Value) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_dataset_named_tensors(tensors.as_raw(), out) })
    }

    /// Rows of different lengths: row i of each tensor is its entries from offsets\[i\] to offsets\[i + 1\]. An item is a
    /// list with one row of each. The tensors are on the CPU, and share their memory.
    pub fn ragged(values: &[&Tensor], offsets: &Tensor) -> Result<Self> {
        let handles: Vec<_> = values.iter().map(|tensor| tensor.as_raw()).collect();
        let (first, length) = array(&handles);
        Self::made(|out| unsafe { sys::accel_dataset_ragged(first, length, offsets.as_raw(), out) })
    }

    /// Tokens, integers on the CPU, cut into windows that begin `stride` apart (None: `sequence_length`). An item is a list
    /// of two int64 tensors: the tokens, and the same shifted by one.
    pub fn windows(tokens: &Tensor, sequence_length: i64, stride: Option<i64>) -> Result<Self> {
        let stride = stride.unwrap_or(sys::ACCEL_UNSET_INT64);
        Self::made(|out| unsafe { sys::accel_dataset_windows(tokens.as_raw(), sequence_length, stride, out) })
    }

    /// Datasets with items by number, one behind the other.
    pub fn concatenate(datasets: &[&Dataset]) -> Result<Self> {
        let handles: Vec<_> = datasets.iter().map(|dataset| dataset.as_raw()).collect();
        let (first, length) = array(&handles);
        Self::made(|out| unsafe { sys::accel_dataset_concatenate(first, length, out) })
    }

    /// Some items in a row.
    pub fn subset(&self, items: Range<i64>) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_dataset_subset(self.as_raw(), items.start, items.end, out) })
    }

    /// The number of items; -1 where it is not known, see [`try_len`](Self::try_len).
    pub fn len(&self) -> i64 {
        self.try_len().unwrap_or(-1)
    }

    /// The number of items.
    ///
    /// # Errors
    /// Unsupported for a stream whose length is not known; what the program's own length answers.
    pub fn try_len(&self) -> Result<i64> {
        check_number(unsafe { sys::accel_dataset_length(self.as_raw()) })
    }

    /// Whether it is known that there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was left out when files were opened: malformed rows where that was asked for, and files that are no images.
    pub fn num_skipped(&self) -> i64 {
        unsafe { sys::accel_dataset_num_skipped(self.as_raw()) }
    }

    /// One item.
    pub fn item(&self, index: i64) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_dataset_item(self.as_raw(), index, out) })
    }
}
