//! Documents in sequences of one length.
use super::Dataset;
use crate::error::Result;
use crate::options::{constants, options};
use crate::tensor::Tensor;
use accel_sys as sys;

constants! {
    /// How documents come into sequences.
    Packing {
        /// One behind the other, cut where a sequence ends.
        Concatenate = ACCEL_PACKING_CONCATENATE,
        /// Whole: from the longest to the shortest, each where the least room is left.
        BestFit = ACCEL_PACKING_BEST_FIT,
    }
}

options! {
    /// How documents are packed.
    PackingOptions(accel_packing_options_t = ACCEL_PACKING_OPTIONS_INIT) {
        /// Must be given.
        sequence_length: i64,
        /// The token that ends each document, and belongs to it; where no offsets are given.
        end_of_document: i64,
        /// Default [`Packing::Concatenate`].
        packing: Packing,
        /// Behind the last document of a sequence. Default 0.
        pad_token: i64,
    }
}

impl Dataset {
    /// Documents packed into sequences of one length. `document_offsets` says where each document begins, and the end of
    /// the last; without them the options say which token ends a document. An item is a list of four int64 tensors: the
    /// tokens; the next token of the same document, -100 where there is none; the position; the number of the document, -1
    /// for padding.
    pub fn packed(tokens: &Tensor, document_offsets: Option<&Tensor>, options: PackingOptions) -> Result<Self> {
        let mut raw = options.0;
        if let Some(offsets) = document_offsets {
            raw.document_offsets = offsets.as_raw();
        }
        Self::made(|out| unsafe { sys::accel_dataset_packed(tokens.as_raw(), &raw, out) })
    }
}
