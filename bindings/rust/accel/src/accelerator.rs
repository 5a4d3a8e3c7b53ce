// SPDX-License-Identifier: Apache-2.0
//! The training loop: what a state prepares, and what happens between a forward and a step.
mod batch_size;
mod gradients;
mod local_sgd;
mod prepare;

#[rustfmt::skip]
#[path = "generated/accelerator_closures.rs"]
pub(crate) mod closures;

pub use local_sgd::LocalSgd;
pub use prepare::Prepare;
