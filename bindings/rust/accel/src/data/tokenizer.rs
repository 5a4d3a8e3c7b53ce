// SPDX-License-Identifier: Apache-2.0
//! Tokenizers.
use crate::handle::handle;

handle! {
    /// A vocabulary with its rules: text to token ids and back, and chats as text.
    Tokenizer(accel_tokenizer_t), accel_tokenizer_release, shared by accel_tokenizer_retain
}

handle! {
    /// Ids that become text one after another. One thread at a time uses it.
    DecodeStream(accel_decode_stream_t), accel_decode_stream_release
}
