//! Datasets, and those of tensors.
use crate::error::Result;
use crate::handle::handle;
use accel_sys as sys;
use std::ops::Range;

handle! {
    /// Items by number, or a stream of items. One thread at a time uses it.
    ///
    /// What needs items by number refuses a stream with [`Unsupported`](crate::ErrorCode::Unsupported).
    Dataset(accel_dataset_t), accel_dataset_release
}

impl Dataset {
    /// Some items in a row.
    pub fn subset(&self, items: Range<i64>) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_dataset_subset(self.as_raw(), items.start, items.end, out) })
    }

    /// The number of items; -1 where it is not known, see [`try_len`](Self::try_len).
    pub fn len(&self) -> i64 {
        self.try_len().unwrap_or(-1)
    }

    /// Whether it is known that there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
