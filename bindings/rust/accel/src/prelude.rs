// SPDX-License-Identifier: Apache-2.0
//! Names that most programs use: `use accel::prelude::*;`. Without [`accel::Result`](crate::Result), which would hide the
//! one of the language.
pub use crate::builders::*;
pub use crate::flags::*;
pub use crate::{nn, ops};
pub use crate::{
    Checkpoint, DType, DataLoader, Dataset, Device, Ellipsis, Error, ErrorCode, Generator, IndexOp, Logger, Model,
    Module, NewAxis, Op, Optimizer, Parameters, Sampler, Scheduler, State, StateReader, Step, Tensor, Tracker, Tree,
    Value, Work,
};
