//! Trackers, loggers, progress bars and the profiler: what shows a run.
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::Result;
use crate::handle::handle;
use crate::options::Options;
use crate::{ProfileOptions, State};
use accel_sys as sys;
use std::ffi::c_void;

handle! {
    /// A tracker that runs: what [`State::log`](crate::State::log) hands values to.
    Tracker(accel_tracker_t), accel_tracker_release
}

handle! {
    /// A named source of messages that knows the rank.
    Logger(accel_logger_t), accel_logger_release
}

handle! {
    /// A progress bar.
    ProgressBar(accel_progress_bar_t), accel_progress_bar_release
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
    /// That of the body; InvalidArgument, Unsupported, InvalidState while another profiler runs, Io.
    pub fn profile<T>(
        &self,
        options: ProfileOptions,
        body: impl FnOnce(&Profile) -> Result<T>,
    ) -> Result<(Profile, T)> {
        let options = options.as_raw()?;
        let profile = made(|out| unsafe {
            sys::accel_profile_begin(self.as_raw(), options, None, std::ptr::null_mut(), None, out)
        })?;
        record(profile, body)
    }

    /// As [`profile`](State::profile); `ready` runs when a cycle of the schedule is complete, and at the end.
    ///
    /// # Errors
    /// Those of [`profile`](State::profile), and what `ready` answers.
    pub fn profile_cycles<T, F>(
        &self,
        options: ProfileOptions,
        ready: F,
        body: impl FnOnce(&Profile) -> Result<T>,
    ) -> Result<(Profile, T)>
    where
        F: FnMut(&Profile) -> CallbackResult + Send + 'static,
    {
        let options = options.as_raw()?;
        let (data, destroy) = hand_over(Exclusive::new(ready));
        // SAFETY: the closure is of the kind that the callback takes.
        let profile = made(|out| unsafe {
            sys::accel_profile_begin(self.as_raw(), options, Some(call_ready::<F>), data, destroy, out)
        })?;
        record(profile, body)
    }
}

/// After an error or a panic of the body the profile is dropped, which ends it.
fn record<T>(profile: Profile, body: impl FnOnce(&Profile) -> Result<T>) -> Result<(Profile, T)> {
    let given = body(&profile)?;
    profile.end()?;
    Ok((profile, given))
}

unsafe extern "C" fn call_ready<F>(profile: *mut sys::accel_profile_t, data: *mut c_void) -> i32
where
    F: FnMut(&Profile) -> CallbackResult,
{
    callback::run(|| {
        let profile = Profile::from_raw(sys::accel_profile_retain(profile));
        closure::<Exclusive<F>>(data).with(|ready| ready(&profile))
    })
}
