//! Documents in sequences of one length.
use super::Dataset;
use crate::builders::PackingOptions;
use crate::error::Result;
use crate::tensor::Tensor;
use accel_sys as sys;

impl Dataset {
    /// Documents packed into sequences of one length. `document_offsets` says where each document begins, and the end of
    /// the last; without them the options say which token ends a document. An item is a list of four int64 tensors: the
    /// tokens; the next token of the same document, -100 where there is none; the position; the number of the document, -1
    /// for padding.
    pub fn packed(tokens: &Tensor, document_offsets: Option<&Tensor>, options: PackingOptions) -> Result<Self> {
        let mut options = options;
        if let Some(offsets) = document_offsets {
            options.0.document_offsets = offsets.as_raw();
        }
        Self::made(|out| unsafe { sys::accel_dataset_packed(tokens.as_raw(), &options.0, out) })
    }
}
