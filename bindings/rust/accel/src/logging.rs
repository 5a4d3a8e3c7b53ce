//! Loggers, and what forwards the messages of the crate `log` to them.
use crate::call::made;
use crate::callback::{nothing, Callback};
use crate::error::Result;
use crate::state::StateReader;
use crate::strings::c_string;
use crate::tracking::{closures, Logger};
use accel_sys as sys;

// SAFETY: all its functions are of the kind `any`.
unsafe impl Sync for Logger {}

impl Clone for Logger {
    fn clone(&self) -> Self {
        // SAFETY: the handle is alive, and the reference that is added belongs to the new owner.
        unsafe { Self::from_raw(sys::accel_logger_retain(self.as_raw())) }
    }
}

impl StateReader {
    /// A logger, whose messages go to the sinks of [`StateReader::log_sink_add`].
    ///
    /// * `level`: The lowest that is logged: 10 is DEBUG, 20 INFO, 30 WARNING, 40 ERROR; `None`: that of
    ///   ACCELERATE_LOG_LEVEL, else 30.
    ///
    /// # Errors
    /// InvalidArgument.
    pub fn logger(&self, name: &str, level: impl Into<Option<i32>>) -> Result<Logger> {
        new_logger(self, name, level.into(), nothing)
    }

    /// The same, and `hear` gets the level, the name and the text of each message: for another logging of the program.
    /// It must not call the library.
    ///
    /// # Errors
    /// InvalidArgument.
    pub fn logger_with<F>(&self, name: &str, level: impl Into<Option<i32>>, hear: F) -> Result<Logger>
    where
        F: Fn(i32, &str, &str) + Send + Sync + 'static,
    {
        new_logger(self, name, level.into(), || closures::logger(hear))
    }
}

fn new_logger(
    state: &StateReader,
    name: &str,
    level: Option<i32>,
    hear: impl FnOnce() -> Callback<sys::accel_logger_fn>,
) -> Result<Logger> {
    let (name, level) = (c_string(name)?, level.unwrap_or(sys::ACCEL_UNSET));
    let (call, data, destroy) = hear();
    made(|out| unsafe { sys::accel_logger_create(state.as_raw(), name.as_ptr(), level, call, data, destroy, out) })
}

#[cfg(feature = "log")]
mod facade {
    use crate::builders::LogRanks;
    use crate::Logger;

    fn number(level: log::Level) -> i32 {
        match level {
            log::Level::Error => 40,
            log::Level::Warn => 30,
            log::Level::Info => 20,
            log::Level::Debug => 10,
            log::Level::Trace => 5,
        }
    }

    /// The messages of the main process, with their targets before them.
    #[cfg_attr(docsrs, doc(cfg(feature = "log")))]
    impl log::Log for Logger {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            Logger::enabled(self, number(metadata.level()))
        }

        fn log(&self, record: &log::Record<'_>) {
            if log::Log::enabled(self, record.metadata()) {
                // A NUL would end the text; and whoever logs cannot handle that a disk is full.
                let line = format!("{}: {}", record.target(), record.args()).replace('\0', " ");
                let _ = Logger::log(self, number(record.level()), &line, LogRanks::MainProcess);
            }
        }

        fn flush(&self) {}
    }

    impl Logger {
        /// Makes it the logger of the crate `log`, once in a process: `log::info!()` and its like go to the sinks.
        ///
        /// # Errors
        /// Where there is one already.
        #[cfg_attr(docsrs, doc(cfg(feature = "log")))]
        pub fn install(self) -> Result<(), log::SetLoggerError> {
            let most = [log::Level::Error, log::Level::Warn, log::Level::Info, log::Level::Debug, log::Level::Trace]
                .into_iter()
                .rfind(|level| Logger::enabled(&self, number(*level)));
            log::set_boxed_logger(Box::new(self))?;
            log::set_max_level(most.map_or(log::LevelFilter::Off, |level| level.to_level_filter()));
            Ok(())
        }
    }
}
