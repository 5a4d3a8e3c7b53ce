//! Data: items by number or as a stream, their order, and batches of them.
mod dataset;
mod files;
mod items;
mod loader;
mod packing;
mod sampler;
mod stream;

pub use dataset::Dataset;
pub use files::{CsvOptions, ImageOptions};
pub use items::Items;
pub use loader::{Collate, DataLoader, DataLoaderConfig, DataLoaderOptions, PaddingSide};
pub use packing::{Packing, PackingOptions};
pub use sampler::Sampler;
pub use stream::{MergeEnd, Reader};
