// SPDX-License-Identifier: Apache-2.0
//! Trackers of the program.
use crate::builders::{TrackerEvent, TrackerOptions};
use crate::call::made;
use crate::callback::CallbackResult;
use crate::error::{check, Result};
use crate::options::optional;
use crate::state::State;
use crate::strings::c_string;
use crate::tracking::{closures, Tracker};
use crate::value::Value;
use accel_sys as sys;

/// The step of values that belong to none.
pub const NO_STEP: i64 = sys::ACCEL_UNSET_INT64;

/// A tracker that the program writes. Methods that it does not need keep their defaults.
pub trait GeneralTracker: Send + 'static {
    /// Its name, for `log_with` and messages.
    fn name(&self) -> String;

    /// Where it runs, and whether it needs a folder.
    fn options(&self) -> TrackerOptions {
        TrackerOptions::new()
    }

    /// The run begins: `project`, `run`, `logging_dir`, `rank`, `world_size`, `options`.
    fn start(&mut self, _run: &Value) -> CallbackResult {
        Ok(())
    }

    /// The configuration of [`State::init_trackers`].
    fn store_init_configuration(&mut self, _values: &Value) -> CallbackResult {
        Ok(())
    }

    /// The values of a step.
    fn log(&mut self, values: &Value, step: Option<i64>, kwargs: &Value) -> CallbackResult;

    /// Other content: images, tables, figures, artifacts, and events that come later.
    fn other(&mut self, _event: TrackerEvent, _content: &Value, _step: Option<i64>) -> CallbackResult {
        Ok(())
    }

    /// Everything is to be on the disk.
    fn flush(&mut self) -> CallbackResult {
        Ok(())
    }

    /// The run ends.
    fn finish(&mut self) -> CallbackResult {
        Ok(())
    }
}

impl Tracker {
    /// A tracker that is one function of what happens. [`State::add_tracker`] adds it to those of a state.
    pub fn new<F>(name: &str, options: impl Into<Option<TrackerOptions>>, tracker: F) -> Result<Self>
    where
        F: FnMut(TrackerEvent, &Value, Option<i64>) -> CallbackResult + Send + 'static,
    {
        let (name, options) = (c_string(name)?, options.into());
        let (options, mut tracker) = (optional(&options)?, tracker);
        let (call, data, destroy) = closures::tracker(move |event, content, step| {
            let step = (step != NO_STEP).then_some(step);
            // One without a name is of a later version.
            TrackerEvent::from_raw(event).map_or(Ok(()), |event| tracker(event, content, step))
        });
        made(|out| unsafe { sys::accel_tracker_create(name.as_ptr(), options, call, data, destroy, out) })
    }

    /// A tracker with a method for each thing that happens.
    pub fn general(mut tracker: impl GeneralTracker) -> Result<Self> {
        let (name, options) = (tracker.name(), tracker.options());
        Tracker::new(&name, options, move |event, content, step| match event {
            TrackerEvent::Start => tracker.start(content),
            TrackerEvent::Configuration => tracker.store_init_configuration(content),
            TrackerEvent::Values => {
                let values = content.get("values").ok_or("values are missing")?;
                tracker.log(values, step, content.get("kwargs").ok_or("kwargs are missing")?)
            }
            TrackerEvent::Flush => tracker.flush(),
            TrackerEvent::Finish => tracker.finish(),
            event => tracker.other(event, content, step),
        })
    }
}

impl State {
    /// Hands a picture that is already encoded to the trackers that show it: a PNG, JPEG, SVG or HTML file.
    pub fn log_figure(&self, name: &str, bytes: &[u8], step: i64) -> Result<()> {
        let name = c_string(name)?;
        // SAFETY: the bytes are as many as their length says.
        let status =
            unsafe { sys::accel_log_figure(self.as_raw(), name.as_ptr(), bytes.as_ptr().cast(), bytes.len(), step) };
        check(status).map(drop)
    }
}
