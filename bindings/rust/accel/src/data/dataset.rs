// SPDX-License-Identifier: Apache-2.0
//! Datasets.
use crate::builders::{CsvOptions, PackingOptions};
use crate::call::made;
use crate::error::Result;
use crate::handle::handle;
use crate::strings::{c_path, c_string};
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::ptr::{self, NonNull};

handle! {
    /// A map-style or iterable dataset. One thread at a time uses it.
    ///
    /// A function that needs a map-style dataset refuses a stream with [`Unsupported`](crate::ErrorCode::Unsupported). The
    /// path of files is that of a file, or of a folder: then all regular files below it, in the order of their paths,
    /// that end with the suffix. Large files are mapped, and must not be shortened meanwhile.
    Dataset(accel_dataset_t), accel_dataset_release
}

impl Dataset {
    /// Some items in a row.
    pub fn subset(&self, items: Range<i64>) -> Result<Self> {
        made(|out| unsafe { sys::accel_dataset_subset(self.as_raw(), items.start, items.end, out) })
    }

    /// The number of items; -1 where it is not known, see [`try_len`](Self::try_len).
    pub fn len(&self) -> i64 {
        self.try_len().unwrap_or(-1)
    }

    /// Whether it is known that there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Documents packed into sequences of one length. `document_offsets` says where each document begins, and the end of
    /// the last; without them the options say which token ends a document. An item is a list of four int64 tensors: the
    /// tokens; the next token of the same document, -100 where there is none; the position; the number of the document, -1
    /// for padding.
    pub fn packed(tokens: &Tensor, document_offsets: Option<&Tensor>, options: PackingOptions) -> Result<Self> {
        let mut options = options;
        if let Some(offsets) = document_offsets {
            options.0.document_offsets = offsets.as_raw();
        }
        made(|out| unsafe { sys::accel_dataset_packed(tokens.as_raw(), &options.0, out) })
    }

    /// Files of comma-separated values; an item is a map from columns to cells. `types` is a map from columns to "int64",
    /// "float32" and so on, or "text"; the other columns have the narrowest type that holds their first 1000 cells.
    pub fn csv(
        path: impl AsRef<Path>,
        suffix: Option<&str>,
        types: Option<&Value>,
        options: CsvOptions,
    ) -> Result<Self> {
        let (path, suffix) = (c_path(path.as_ref())?, suffix.map(c_string).transpose()?);
        let suffix = suffix.as_ref().map_or(ptr::null(), |suffix| suffix.as_ptr());
        let mut options = options;
        options.0.types = types.map_or(ptr::null(), Value::as_raw);
        made(|out| unsafe { sys::accel_dataset_csv(path.as_ptr(), suffix, &options.0, out) })
    }

    /// A record batch of Arrow's C data interface; an item is a map from columns to rows. `null_value` stands for nulls;
    /// None: a null is an error. Both structs are consumed in any case.
    ///
    /// # Safety
    /// They are a valid `ArrowSchema` and a valid `ArrowArray` that nobody else uses, and that any thread may release.
    pub unsafe fn arrow(schema: NonNull<c_void>, batch: NonNull<c_void>, null_value: Option<f64>) -> Result<Self> {
        let (schema, batch) = (schema.as_ptr().cast(), batch.as_ptr().cast());
        let null_value = null_value.unwrap_or(sys::ACCEL_UNSET_DOUBLE);
        made(|out| sys::accel_dataset_arrow(schema, batch, null_value, out))
    }

    /// All record batches of a stream of Arrow's C stream interface, which is consumed in any case.
    ///
    /// # Safety
    /// It is a valid `ArrowArrayStream` that nobody else uses, and any thread may release its batches.
    pub unsafe fn arrow_stream(stream: NonNull<c_void>, null_value: Option<f64>) -> Result<Self> {
        let null_value = null_value.unwrap_or(sys::ACCEL_UNSET_DOUBLE);
        made(|out| sys::accel_dataset_arrow_stream(stream.as_ptr().cast(), null_value, out))
    }
}
