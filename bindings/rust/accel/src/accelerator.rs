//! The training loop: what a state prepares, and what happens between a forward and a step.
mod batch_size;
mod gradients;
mod local_sgd;
mod prepare;

pub use local_sgd::LocalSgd;
pub use prepare::Prepare;
