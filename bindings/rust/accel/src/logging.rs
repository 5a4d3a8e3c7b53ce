// SPDX-License-Identifier: Apache-2.0
//! Loggers, and what forwards the messages of the crate `log` to them.
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
