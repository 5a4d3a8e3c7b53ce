// SPDX-License-Identifier: Apache-2.0
//! Trackers: of the program, by a closure and by a trait, and files of the built-in ones.
use accel::{
    CallbackResult, ErrorCode, GeneralTracker, Result, State, StateOptions, Tracker, TrackerEvent, TrackerFailure,
    TrackerOptions, TrackingOptions, Value, NO_STEP,
};
use std::sync::{Arc, Mutex};

fn state() -> State {
    StateOptions::new().cpu(true).build().unwrap()
}

fn values() -> Value {
    Value::from_json(r#"{"loss": 1.5, "eval": {"n": 2}}"#).unwrap()
}

#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<String>>>);

impl Noted {
    fn note(&self, line: String) -> CallbackResult {
        self.0.lock().unwrap().push(line);
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl GeneralTracker for Noted {
    fn name(&self) -> String {
        "noted".into()
    }

    fn options(&self) -> TrackerOptions {
        TrackerOptions::new().main_process_only(false)
    }

    fn start(&mut self, run: &Value) -> CallbackResult {
        self.note(format!("start {}", run.get("project").and_then(Value::as_str).unwrap_or("?")))
    }

    fn store_init_configuration(&mut self, values: &Value) -> CallbackResult {
        self.note(format!("configuration {}", values.to_json()?))
    }

    fn log(&mut self, values: &Value, step: Option<i64>, kwargs: &Value) -> CallbackResult {
        self.note(format!("log {} {step:?} {}", values.to_json()?, kwargs.to_json()?))
    }

    fn other(&mut self, event: TrackerEvent, _content: &Value, step: Option<i64>) -> CallbackResult {
        self.note(format!("{event:?} {step:?}"))
    }

    fn finish(&mut self) -> CallbackResult {
        self.note("finish".into())
    }
}

#[test]
fn a_tracker_by_its_methods() -> Result<()> {
    let (state, noted) = (state(), Noted::default());
    let config = Value::from_json(r#"{"lr": 0.5}"#)?;
    let kwargs = Value::from_json(r#"{"noted": {"color": "red"}}"#)?;
    state.add_tracker(&Tracker::general(noted.clone())?)?;
    state.init_trackers("project", Some(&config), None, None)?;
    state.log(&values(), 3, Some(&kwargs))?;
    state.log_scalars(&["x"], &[0.5], NO_STEP)?;
    state.log_figure("plot", b"<svg></svg>", 4)?;
    state.get_tracker("noted")?.log(&values(), 5)?;
    state.finish_trackers()?;
    let all = r#"{"loss":1.5,"eval":{"n":2}}"#;
    assert_eq!(
        noted.lines(),
        [
            "start project".into(),
            r#"configuration {"lr":0.5}"#.into(),
            format!(r#"log {all} Some(3) {{"color":"red"}}"#),
            r#"log {"x":0.5} None {}"#.into(),
            "Figure Some(4)".into(),
            format!("log {all} Some(5) {{}}"),
            "finish".into(),
        ]
    );
    Ok(())
}

#[test]
fn a_closure_that_fails_is_the_source_of_the_error() -> Result<()> {
    let state = state();
    let tracker = Tracker::new("failing", None, |event, _, _| match event {
        TrackerEvent::Values => Err("no connection".into()),
        _ => Ok(()),
    })?;
    state.add_tracker(&tracker)?;
    state.init_trackers("project", None, None, TrackingOptions::new().on_failure(TrackerFailure::Stop))?;
    let error = state.log(&values(), 1, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::User);
    assert!(error.message().contains("tracker 'failing' failed: no connection"), "{error}");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no connection");
    state.init_trackers("project", None, None, None)?; // warns
    state.log(&values(), 1, None)?;
    assert!(state.trackers()?.is_empty());
    Ok(())
}

#[test]
fn values_are_in_files() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("accel_rust_trackers_{}", std::process::id()));
    let state = state();
    let options = || TrackingOptions::new().log_with("jsonl").logging_dir(folder.to_str().unwrap());
    state.init_trackers("run", None, None, options())?;
    state.log(&values(), 7, None)?;
    state.finish_trackers()?;
    let lines = std::fs::read_to_string(folder.join("run/metrics.jsonl")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(lines.contains(r#""step":7,"values":{"loss":1.5,"eval/n":2}}"#), "{lines}");
    let error = state.init_trackers("run", None, None, options().log_with("neptune")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    Ok(())
}
