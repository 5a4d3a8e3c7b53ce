// SPDX-License-Identifier: Apache-2.0
//! The regular functions, which tools/apigen writes from the header.
use crate::big_model::{OffloadHook, WeightStream};
use crate::builders::*;
use crate::call::*;
use crate::callback::CallbackResult;
use crate::comm::Mesh;
use crate::data::*;
use crate::dtype::{DType, Device};
use crate::error::{check, check_callback_of_numbers, check_number, text, Result};
use crate::flags::*;
use crate::generation::GenerationBatch;
use crate::memory;
use crate::module::Model;
use crate::optimizer::{Optimizer, Step};
use crate::options::{milliseconds, optional, Options};
use crate::random::Generator;
use crate::scheduler::Scheduler;
use crate::scope::Scope;
use crate::state::{State, StateReader};
use crate::strings::{c_path, c_string, Texts};
use crate::tensor::Tensor;
use crate::tracking::{Logger, Profile, ProgressBar, Tracker};
use crate::tree::Tree;
use crate::value::{Arg, Value};
use crate::work::{raw_and_owner, Work};
use accel_sys as sys;
use std::path::Path;
use std::ptr;
use std::time::Duration;

macro_rules! topics {
    ($($topic:ident,)*) => {$(
        #[rustfmt::skip]
        mod $topic;
        #[allow(unused_imports)] // of a topic that has only methods
        pub use $topic::*;
    )*};
}

topics! {
    accelerator, big, checkpoints, communication, configuration, data, modules, operators, optimizers, platform, state, tensors, tracking,
    types,
}

#[rustfmt::skip]
pub(crate) mod nn;
