// SPDX-License-Identifier: Apache-2.0
//! Texts for the library.
use crate::error::{Error, ErrorCode, Result};
use std::ffi::CString;
use std::os::raw::c_char;
use std::path::Path;

/// A string for the library.
///
/// # Errors
/// InvalidArgument for one with a NUL inside.
pub(crate) fn c_string(text: impl AsRef<str>) -> Result<CString> {
    CString::new(text.as_ref()).map_err(|_| {
        let message = format!("{:?}: expected text without a NUL", text.as_ref());
        Error::new(ErrorCode::InvalidArgument, message)
    })
}

/// The path of a file for the library.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    let text = path.to_str().ok_or_else(|| {
        let message = format!("path {path:?}: expected UTF-8");
        Error::new(ErrorCode::InvalidArgument, message)
    })?;
    c_string(text)
}

/// Texts for the library, while this lives.
pub(crate) struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    pub(crate) fn new(texts: &[&str]) -> Result<Self> {
        let texts = texts.iter().map(c_string).collect::<Result<Vec<_>>>()?;
        Ok(Texts { pointers: texts.iter().map(|text| text.as_ptr()).collect(), _texts: texts })
    }

    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        crate::call::first(&self.pointers)
    }

    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }
}
