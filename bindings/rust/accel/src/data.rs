// SPDX-License-Identifier: Apache-2.0
//! Data: map-style and iterable datasets, the order of items, and batches of them.
mod batch_loop;
mod dataset;
mod items;
mod loader;
mod sampler;
mod stream;
mod tokenizer;

#[rustfmt::skip]
#[path = "generated/data_closures.rs"]
pub(crate) mod closures;

pub use batch_loop::Loop;
pub use dataset::Dataset;
pub use items::Items;
pub use loader::DataLoader;
pub use sampler::Sampler;
pub use stream::Reader;
pub use tokenizer::{DecodeStream, Tokenizer};
