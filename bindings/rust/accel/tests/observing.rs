// SPDX-License-Identifier: Apache-2.0
//! Loggers, progress bars and step reports.
use accel::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn cpu() -> State {
    StateOptions::new().cpu(true).build().unwrap()
}

#[test]
fn a_logger_is_heard() {
    let state = cpu();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let copy = heard.clone();
    let logger = state
        .logger_with("train", 20, move |level, name, message| {
            copy.lock().unwrap().push((level, name.to_string(), message.to_string()))
        })
        .unwrap();
    assert!(logger.enabled(20) && !logger.enabled(10));
    logger.log(20, "one", LogRanks::MainProcess).unwrap();
    logger.clone().log(10, "too low", LogRanks::AllProcesses).unwrap();
    logger.log(40, "order", LogRanks::InOrder).unwrap();
    logger.warning_once("once", LogRanks::AllProcesses).unwrap();
    logger.warning_once("once", LogRanks::AllProcesses).unwrap();
    let heard: Vec<_> = heard.lock().unwrap().drain(..).collect();
    let messages: Vec<_> = heard.iter().map(|(level, _, message)| (*level, message.as_str())).collect();
    assert_eq!(messages, [(20, "one"), (40, "[RANK 0] order"), (30, "[RANK 0] once")]);
    assert!(heard.iter().all(|(_, name, _)| name == "train"));
    assert_eq!(state.logger("x", 101).err().unwrap().code(), ErrorCode::InvalidArgument);
}

#[test]
fn a_sink_is_a_file() {
    let state = cpu();
    let path = std::env::temp_dir().join(format!("accel-rust-log-{}", std::process::id()));
    let options = LogSinkOptions::new().kind(LogSinkKind::JsonLines).path(path.to_str().unwrap());
    let sink = state.log_sink_add(options).unwrap();
    state.logger("train", 20).unwrap().log(20, "a message", LogRanks::MainProcess).unwrap();
    log_sink_remove(sink).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.contains(r#""message":"a message""#), "{text}");
    assert_eq!(log_sink_remove(sink).err().unwrap().code(), ErrorCode::NotFound);
}

#[test]
fn a_bar_counts_an_iterator() {
    let state = cpu();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let copy = lines.clone();
    let bar = state
        .progress_bar_with("count", 3, ProgressOptions::new().interval(Duration::ZERO), move |line, is_last| {
            copy.lock().unwrap().push((line.to_string(), is_last))
        })
        .unwrap();
    bar.set_values(&Value::map([("loss", Value::from(0.5))]).unwrap()).unwrap();
    let mut items = bar.clone().wrap(["a", "b", "c"]);
    assert_eq!(items.len(), 3);
    assert_eq!(items.by_ref().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(items.bar().report().unwrap().get("count").and_then(Value::as_int), Some(3));
    let lines = lines.lock().unwrap();
    let (last, is_last) = lines.last().unwrap();
    assert!(*is_last && last.contains("3/3 [") && last.contains("loss 0.5"), "{last}");
    assert_eq!(lines.iter().filter(|(_, is_last)| *is_last).count(), 1);
    assert_eq!(bar.inc(1).err().unwrap().code(), ErrorCode::InvalidState);
}

#[test]
fn a_panic_in_a_callback_stays_there() {
    let state = cpu();
    let bar = state
        .progress_bar_with("", None, ProgressOptions::new().interval(Duration::ZERO), |_, _| panic!("no"))
        .unwrap();
    let _ = bar.inc(1);
    bar.finish().unwrap();
}

#[test]
fn a_step_report_has_a_table() {
    let state = cpu();
    state.count_tokens(10).unwrap();
    let report = state.step_report_of_ranks(ResetReport::No).unwrap();
    assert!(step_report_table(&report).unwrap().contains("tokens/s"));
}

#[cfg(feature = "log")]
#[test]
fn the_crate_log_has_a_logger() {
    let state = cpu();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let copy = heard.clone();
    let hear = move |level: i32, _: &str, message: &str| copy.lock().unwrap().push((level, message.to_string()));
    state.logger_with("program", 20, hear).unwrap().install().unwrap();
    log::debug!("too low");
    log::info!(target: "here", "three is {}", 3);
    log::error!(target: "here", "a \0 in it");
    assert_eq!(log::max_level(), log::LevelFilter::Info);
    assert_eq!(*heard.lock().unwrap(), [(20, "here: three is 3".to_string()), (40, "here: a   in it".to_string())]);
    assert!(state.logger("other", 20).unwrap().install().is_err());
}
