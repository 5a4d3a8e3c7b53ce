//! Items by number.
use crate::error::Result;
use crate::handle::{array, c_path, c_string, handle};
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ops::Range;
use std::path::Path;
use std::ptr;

handle! {
    /// Items by number. One thread at a time uses it.
    Dataset(accel_dataset_t), accel_dataset_release
}

impl Dataset {
    /// Rows of tensors, which share their memory; an item is a list with one row of each.
    pub fn tensors(tensors: &[&Tensor]) -> Result<Self> {
        let handles: Vec<_> = tensors.iter().map(|tensor| tensor.as_raw()).collect();
        let (first, length) = array(&handles);
        Self::made(|out| unsafe { sys::accel_dataset_tensors(first, length, out) })
    }

    /// The bytes of a text file, or of all files below a folder that end with `suffix`, cut into windows. An item is a
    /// list of two int64 tensors: the bytes, and the same shifted by one.
    pub fn text(path: impl AsRef<Path>, suffix: Option<&str>, sequence_length: i64) -> Result<Self> {
        let (path, suffix) = (c_path(path.as_ref())?, suffix.map(c_string).transpose()?);
        let suffix = suffix.as_ref().map_or(ptr::null(), |suffix| suffix.as_ptr());
        Self::made(|out| unsafe { sys::accel_dataset_text(path.as_ptr(), suffix, sequence_length, out) })
    }

    /// Some items in a row.
    pub fn subset(&self, items: Range<i64>) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_dataset_subset(self.as_raw(), items.start, items.end, out) })
    }

    /// The number of items.
    pub fn len(&self) -> i64 {
        unsafe { sys::accel_dataset_length(self.as_raw()) }
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One item.
    pub fn item(&self, index: i64) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_dataset_item(self.as_raw(), index, out) })
    }
}
