// SPDX-License-Identifier: Apache-2.0
//! Ranks that the program starts itself.
use crate::builders::LaunchOptions;
use crate::callback::CallbackResult;
use crate::error::{check, Result};
use crate::options::Options;
use accel_sys as sys;

#[rustfmt::skip]
#[path = "generated/launch_closures.rs"]
pub(crate) mod closures;

/// Runs a function in several processes of this program, each a rank, and waits for all of them. It gets the rank's number
/// on this machine. The process of a rank ends with the function: nothing is dropped there, and what the function changes is
/// not seen here.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{launch, LaunchOptions, StateOptions};
/// launch(&LaunchOptions::new().num_processes(2).cpu(true), |_| {
///     let state = StateOptions::new().build()?;
///     assert_eq!(state.num_processes(), 2);
///     Ok(state.wait_for_everyone()?)
/// })
/// # }
/// ```
///
/// # Errors
/// The error of the first rank that failed; [`PeerLost`](crate::ErrorCode::PeerLost) for a process that ended by itself or
/// by a signal, and for a panic [`User`](crate::ErrorCode::User); InvalidState for threads or a state before a fork
/// ([`StartMethod::Program`](crate::StartMethod::Program) is for those).
pub fn launch<F>(options: &LaunchOptions, function: F) -> Result<()>
where
    F: FnMut(i32) -> CallbackResult + Send + 'static,
{
    let raw = options.as_raw()?;
    let (call, data, destroy) = closures::launch(function);
    check(unsafe { sys::accel_launch(raw, call, data, destroy) }).map(drop)
}
