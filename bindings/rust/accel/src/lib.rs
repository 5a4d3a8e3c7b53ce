// SPDX-License-Identifier: Apache-2.0
//! Distributed training over LibTorch, by libaccel.
//!
//! Each process holds one [`State`], its handle to the distributed job: it knows the rank, the device and the precision,
//! from the environment that the launcher set (`accel launch`, torchrun, mpirun, srun). All other objects are created from
//! it:
//!
//! ```
//! # fn main() -> accel::Result<()> {
//! use accel::*;
//!
//! let state = StateOptions::new().cpu(true).build()?;
//! state.set_seed(0, DeviceSpecific::No, Deterministic::No)?;
//!
//! // y = x0 - x1, from 64 rows.
//! let x = Tensor::randn(&[64, 2], DType::Float32, Device::Cpu)?;
//! let y = (&x.narrow(1, 0, 1)? - &x.narrow(1, 1, 1)?)?;
//! let data = DataLoader::new(&Dataset::tensors(&[&x, &y])?, DataLoaderOptions::new().batch_size(16).shuffle(true))?;
//!
//! let model = nn::linear(2, 1, Bias::With)?;
//! let adamw = Optimizer::adamw(&model, AdamOptions::new().lr(0.1))?;
//! let (model, optimizer, mut data) = state.prepare((&model, &adamw, &data))?;
//!
//! let mut last = f64::MAX;
//! for _epoch in 0..20 {
//!     for batch in &mut data {
//!         let batch = batch?;
//!         state.accumulate(&[&model])?.run(|| {
//!             let mut loss = model.forward(batch.tensor_at(0)?)?.mse_loss(batch.tensor_at(1)?)?;
//!             state.backward(&mut loss)?;
//!             optimizer.step()?;
//!             last = loss.item()?;
//!             optimizer.zero_grad()
//!         })?;
//!     }
//! }
//! assert!(last < 0.1);
//! # drop((model, optimizer, data));
//! # state.end_training() }
//! ```
//!
//! # Errors
//! Everything that can fail gives a [`Result`]; an [`Error`] has a code, one line that says what was wrong and what was
//! expected, the function of the C API, and the rank that reported it.
//!
//! # Ownership
//! Objects are released when they are dropped, and keep alive what they use. [`State::end_training`] consumes the state, so
//! the compiler refuses what comes after it.
//!
//! # Threads
//! Functions that the header calls `any` take `&self` of a type that is `Sync`: tensors, operators, values, a
//! [`StateReader`]. Objects that one thread at a time may use are `Send` and not `Sync`. Regions ([`Scope`]) belong to their
//! thread and are neither. Two objects that share what is behind them, a model and one of its children, count as one.
//!
//! # Callbacks
//! Closures are callbacks: the forward of a [`Module`], a schedule, an update. Their `Err` comes out of the outer call, as
//! the source of its error; a panic continues there.
//!
//! # Features
//! Nothing is on by default.
//! * `half`: `half::f16` and `half::bf16` are elements of tensors.
//! * `linked`: the library is linked when the program is built, instead of loaded by its first call.
//! * `log`: a [`Logger`] takes the messages of that crate, `Logger::install`; the library's own go there by `log_to_log`.
//! * `ndarray`: tensors from and as arrays of that crate, without a copy.
//! * `serde`: options, [`Value`], [`DType`], [`Device`] and all choices are read and written. Options are maps of those that are set,
//!   by their names in `accel.h`; times are in milliseconds.
//! * `tracing`: the library's own messages are events of that crate, `log_to_tracing`.
#![deny(missing_docs, missing_debug_implementations)]
// Blocks of `unsafe` that are nothing but a call of the C API have no comment of their own: their handles are alive because
// somebody owns or borrows them, pointers lead to what lives through the call, and a callback comes with the closure that it was
// made for. All others say why they are sound; a test looks for it.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod accelerator;
mod arithmetic;
#[cfg(feature = "ndarray")]
mod array;
mod big_model;
mod builders;
mod call;
mod callback;
mod checkpoint;
mod comm;
mod configuration;
mod data;
mod display;
mod dlpack;
mod dtype;
mod error;
mod failure;
mod flags;
mod generated;
mod generation;
mod handle;
mod index;
mod launch;
mod library;
mod logging;
mod memory;
mod module;
pub mod nn;
mod op;
pub mod ops;
mod optimizer;
mod options;
mod parameters;
pub mod prelude;
mod progress;
mod random;
mod scheduler;
mod scope;
mod serialize;
mod slice;
mod state;
mod strings;
mod tensor;
mod tracker;
mod tracking;
mod tree;
mod value;
mod work;

/// Makes a struct one that collectives and batches know.
pub use accel_derive::Tree;
pub use accelerator::*;
pub use big_model::{OffloadHook, WeightStream};
pub use builders::*;
pub use callback::CallbackResult;
pub use checkpoint::Checkpoint;
pub use comm::Mesh;
pub use data::*;
pub use dlpack::{DlPack, DlPackUnversioned};
pub use dtype::{DType, Device, Element};
pub use error::{Error, ErrorCode, Result};
pub use flags::*;
pub use generated::*;
pub use generation::GenerationBatch;
pub use index::{Ellipsis, IndexOp, NewAxis, TensorIndex};
pub use launch::launch;
pub use library::*;
pub use module::{Model, Module, When};
pub use op::Op;
pub use ops::Scalar;
pub use optimizer::*;
pub use parameters::Parameters;
pub use progress::Progress;
pub use random::Generator;
pub use scheduler::*;
pub use scope::Scope;
pub use state::{State, StateReader};
pub use tensor::Tensor;
pub use tracker::{GeneralTracker, NO_STEP};
pub use tracking::{Logger, Profile, ProgressBar, Tracker};
#[doc(hidden)]
pub use tree::Fields;
pub use tree::{Tree, TreeArg};
pub use value::{Arg, Kind, Value};
pub use work::Work;

/// The README's programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
