// SPDX-License-Identifier: Apache-2.0
//! Trackers, loggers, progress bars and the profiler: what shows a run.
use crate::call::made;
use crate::callback::{nothing, Callback, CallbackResult};
use crate::error::Result;
use crate::handle::handle;
use crate::options::Options;
use crate::{ProfileOptions, State};
use accel_sys as sys;

#[rustfmt::skip]
#[path = "generated/tracking_closures.rs"]
pub(crate) mod closures;

handle! {
    /// A tracker that runs: what [`State::log`](crate::State::log) hands values to.
    Tracker(accel_tracker_t), accel_tracker_release
}

handle! {
    /// A named source of messages that knows the rank.
    Logger(accel_logger_t), accel_logger_release, shared by accel_logger_retain
}

handle! {
    /// A progress bar.
    ProgressBar(accel_progress_bar_t), accel_progress_bar_release, shared by accel_progress_bar_retain
}

handle! {
    /// A profiler and what it recorded.
    Profile(accel_profile_t), accel_profile_release
}

impl State {
    /// Records what `body` does, as Chrome traces: operators, collectives, waits. [`Profile::step`] ends a step. The profile is
    /// given back, for what it recorded.
    ///
    /// ```
    /// use accel::{GroupByShapes, Profile, ProfileOptions, StateOptions};
    ///
    /// let state = StateOptions::new().cpu(true).build()?;
    /// let (profile, ()) = state.profile(ProfileOptions::new(), |profile| {
    ///     // train
    ///     profile.step()
    /// })?;
    /// println!("{}", Profile::table(&profile.key_averages(GroupByShapes::No)?, "self_cpu_us", 10)?);
    /// # Ok::<(), accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the body; InvalidArgument, Unsupported, InvalidState while another profiler runs, Io.
    pub fn profile<T>(
        &self,
        options: ProfileOptions,
        body: impl FnOnce(&Profile) -> Result<T>,
    ) -> Result<(Profile, T)> {
        record(self, options, nothing, body)
    }

    /// Same as [`profile`](State::profile); `ready` runs when a cycle of the schedule is complete, and at the end.
    ///
    /// # Errors
    /// The errors of [`profile`](State::profile), and of `ready`.
    pub fn profile_cycles<T, F>(
        &self,
        options: ProfileOptions,
        ready: F,
        body: impl FnOnce(&Profile) -> Result<T>,
    ) -> Result<(Profile, T)>
    where
        F: FnMut(&Profile) -> CallbackResult + Send + 'static,
    {
        record(self, options, || closures::trace_ready(ready), body)
    }
}

/// After an error or a panic of the body the profile is dropped, which ends it.
fn record<T>(
    state: &State,
    options: ProfileOptions,
    ready: impl FnOnce() -> Callback<sys::accel_trace_ready_fn>,
    body: impl FnOnce(&Profile) -> Result<T>,
) -> Result<(Profile, T)> {
    let options = options.as_raw()?;
    let (call, data, destroy) = ready();
    let profile = made(|out| unsafe { sys::accel_profile_begin(state.as_raw(), options, call, data, destroy, out) })?;
    let given = body(&profile)?;
    profile.end()?;
    Ok((profile, given))
}
