//! Data: items by number, their order, and batches of them.
mod dataset;
mod loader;
mod sampler;

pub use dataset::Dataset;
pub use loader::{DataLoader, DataLoaderConfig, DataLoaderOptions};
pub use sampler::Sampler;
