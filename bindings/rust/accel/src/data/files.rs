//! Items that come from files.
//!
//! A path is that of a file, or of a folder: then all regular files below it, in the order of their paths, that end with
//! the suffix. Large files are mapped, and must not be shortened meanwhile.
use super::Dataset;
use crate::builders::CsvOptions;
use crate::error::Result;
use crate::strings::{c_path, c_string};
use crate::value::Value;
use accel_sys as sys;
use std::ffi::{c_void, CString};
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{self, NonNull};

/// A path and a suffix for the library.
struct Place(CString, Option<CString>);

impl Place {
    fn new(path: impl AsRef<Path>, suffix: Option<&str>) -> Result<Self> {
        Ok(Place(c_path(path.as_ref())?, suffix.map(c_string).transpose()?))
    }

    fn path(&self) -> *const c_char {
        self.0.as_ptr()
    }

    fn suffix(&self) -> *const c_char {
        self.1.as_ref().map_or(ptr::null(), |suffix| suffix.as_ptr())
    }
}

impl Dataset {
    /// Files of comma-separated values; an item is a map from columns to cells. `types` is a map from columns to "int64",
    /// "float32" and so on, or "text"; the other columns have the narrowest type that holds their first 1000 cells.
    pub fn csv(
        path: impl AsRef<Path>,
        suffix: Option<&str>,
        types: Option<&Value>,
        options: CsvOptions,
    ) -> Result<Self> {
        let place = Place::new(path, suffix)?;
        let mut options = options;
        options.0.types = types.map_or(ptr::null(), Value::as_raw);
        Self::made(|out| unsafe { sys::accel_dataset_csv(place.path(), place.suffix(), &options.0, out) })
    }

    /// A record batch of Arrow's C data interface; an item is a map from columns to rows. `null_value` stands for nulls;
    /// None: a null is an error. Both structs are consumed in any case.
    ///
    /// # Safety
    /// They are a valid `ArrowSchema` and a valid `ArrowArray` that nobody else uses, and that any thread may release.
    pub unsafe fn arrow(schema: NonNull<c_void>, batch: NonNull<c_void>, null_value: Option<f64>) -> Result<Self> {
        let (schema, batch) = (schema.as_ptr().cast(), batch.as_ptr().cast());
        let null_value = null_value.unwrap_or(sys::ACCEL_UNSET_DOUBLE);
        Self::made(|out| sys::accel_dataset_arrow(schema, batch, null_value, out))
    }

    /// All record batches of a stream of Arrow's C stream interface, which is consumed in any case.
    ///
    /// # Safety
    /// It is a valid `ArrowArrayStream` that nobody else uses, and any thread may release its batches.
    pub unsafe fn arrow_stream(stream: NonNull<c_void>, null_value: Option<f64>) -> Result<Self> {
        let null_value = null_value.unwrap_or(sys::ACCEL_UNSET_DOUBLE);
        Self::made(|out| sys::accel_dataset_arrow_stream(stream.as_ptr().cast(), null_value, out))
    }
}
