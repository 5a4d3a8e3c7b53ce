//! Trackers, loggers, progress bars and the profiler: what shows a run.
use crate::handle::handle;

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
