// SPDX-License-Identifier: Apache-2.0
//! What the features `half`, `serde`, `log` and `tracing` add.
#![cfg(all(feature = "half", feature = "serde", feature = "log", feature = "tracing"))]

use accel::prelude::*;
use accel::{log_to_log, log_to_tracing, set_log, LogLevel};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

#[test]
fn half_precision_has_elements() -> accel::Result<()> {
    let values = [half::bf16::from_f32(1.5), half::bf16::from_f32(-2.0)];
    let tensor = Tensor::from_slice(&values, &[2])?;
    assert_eq!((tensor.dtype(), tensor.to_vec::<half::bf16>()?), (DType::BFloat16, values.to_vec()));
    assert_eq!((&tensor + 1.0)?.to_dtype(DType::Float32)?.to_vec::<f32>()?, [2.5, -1.0]);
    let tensor = Tensor::from_vec(vec![half::f16::from_f32(0.5)], &[1])?;
    assert_eq!((tensor.dtype(), tensor.item()?), (DType::Float16, 0.5));
    assert!(tensor.to_vec::<half::bf16>().is_err());
    Ok(())
}

#[test]
fn values_are_read_and_written() {
    let text = r#"{"step":3,"rates":[0.5,0.25],"name":"run","done":true,"none":null}"#;
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!(value.get("step").and_then(Value::as_int), Some(3));
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    let tensor = Value::from(Tensor::from_slice(&[1i64, 2, 3, 4], &[2, 2]).unwrap());
    assert_eq!(serde_json::to_string(&tensor).unwrap(), "[[1,2],[3,4]]");

    let plain = (DType::BFloat16, Device::Cuda(1), Precision::Bf16);
    let written = serde_json::to_string(&plain).unwrap();
    assert_eq!(written, r#"["bfloat16","cuda:1","Bf16"]"#);
    assert_eq!(serde_json::from_str::<(DType, Device, Precision)>(&written).unwrap(), plain);
    let error = serde_json::from_str::<Precision>(r#""Bf17""#).unwrap_err().to_string();
    assert!(error.contains("\"Bf17\": expected one of [\"No\""), "{error}");
    assert!(serde_json::from_str::<DType>("\"real\"").is_err());
}

#[test]
fn options_are_read_and_written() {
    let text = r#"{"cpu":true,"mixed_precision":"Bf16","timeout_ms":5000,"process_index":0,"main_process_ip":"::1"}"#;
    let options: StateOptions = serde_json::from_str(text).unwrap();
    let shown =
        r#"StateOptions { cpu: true, mixed_precision: Bf16, timeout: 5s, process_index: 0, main_process_ip: "::1" }"#;
    assert_eq!(format!("{options:?}"), shown);
    assert_eq!(serde_json::to_string(&options).unwrap(), text);
    assert_eq!(serde_json::to_string(&AdamOptions::new()).unwrap(), "{}");

    // Options in options, maps, characters, and choices as other languages write them.
    let text = r#"{"fsdp":{"sharding_strategy":"hybrid_shard","activation_checkpointing":true,"param_dtype":"bf16"}}"#;
    let options: PrepareModelOptions = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&options).unwrap().to_lowercase(), reordered());
    let csv: CsvOptions = serde_json::from_str(r#"{"delimiter":";"}"#).unwrap();
    assert_eq!(serde_json::to_string(&csv).unwrap(), r#"{"delimiter":";"}"#);
    let types = r#"{"special_dtypes":{"head.weight":"float32"}}"#;
    let sizes: DeviceMapOptions = serde_json::from_str(types).unwrap();
    assert_eq!(serde_json::to_string(&sizes).unwrap(), types);

    let refused = |text| serde_json::from_str::<AdamOptions>(text).unwrap_err().to_string();
    assert!(refused(r#"{"learning_rate":1}"#).contains("unknown field `learning_rate`, expected one of `lr`"));
    assert!(refused(r#"{"lr":"high"}"#).contains("expected f64"));
    assert!(refused("3").contains("expected a map with some of lr, "));
    let error = serde_json::from_str::<FsdpOptions>(r#"{"sharding_strategy":"most"}"#).unwrap_err().to_string();
    assert!(error.contains(r#""most": expected one of ["FullShard""#), "{error}");
    assert!(serde_json::to_string(&StateOptions::new().main_process_ip("a\0b")).is_err());
}

/// In the order of the header, and without capitals.
fn reordered() -> &'static str {
    r#"{"fsdp":{"sharding_strategy":"hybridshard","param_dtype":"bf16","activation_checkpointing":true}}"#
}

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());
static EVENTS: AtomicUsize = AtomicUsize::new(0);

struct Recorder;

impl log::Log for Recorder {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        HEARD.lock().unwrap().push(format!("{} {}", record.target(), record.args()));
    }

    fn flush(&self) {}
}

impl tracing::Subscriber for Recorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "accel"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        EVENTS.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Something that the library warns of: a setting that differs.
fn work() -> accel::Result<()> {
    let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With)?, SgdOptions::new())?;
    let other = Scheduler::exponential(&optimizer, 0.25)?.state_dict()?;
    Scheduler::exponential(&optimizer, 0.5)?.load_state_dict(&other)
}

#[test]
fn the_library_logs_to_log_and_to_tracing() -> accel::Result<()> {
    // The library does log here.
    let messages = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = messages.clone();
    set_log(LogLevel::Debug, move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
    })?;
    work()?;
    assert!(messages.load(Ordering::SeqCst) > 0);

    log::set_logger(&Recorder).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    log_to_log(LogLevel::Debug)?;
    work()?;
    let heard = HEARD.lock().unwrap().clone();
    assert!(!heard.is_empty() && heard.iter().all(|line| line.starts_with("accel ")), "{heard:?}");

    tracing::subscriber::set_global_default(Recorder).unwrap();
    log_to_tracing(LogLevel::Debug)?;
    work()?;
    assert!(EVENTS.load(Ordering::SeqCst) > 0);
    accel::unset_log()
}
