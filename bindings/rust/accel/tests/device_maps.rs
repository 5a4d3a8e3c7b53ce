// SPDX-License-Identifier: Apache-2.0
//! Device maps of models.
use accel::{nn, Bias, DeviceMapOptions, ErrorCode, Value};

#[test]
fn a_model_is_placed_and_the_decisions_are_explained() {
    let model = nn::sequential(&[&nn::linear(4, 4, Bias::Without).unwrap(), &nn::linear(4, 8, Bias::Without).unwrap()])
        .unwrap();
    let memory = Value::from_json(r#"{"0": 150, "cpu": "1KiB"}"#).unwrap();
    let (map, explanation) = accel::infer_auto_device_map(&model, Some(&memory), None).unwrap();
    assert_eq!(map.to_json().unwrap(), r#"{"":"cpu"}"#);
    assert_eq!(explanation.get("decisions").unwrap().len(), 3);
    let options = DeviceMapOptions::new().dtype("float16").optimal_packing(true);
    let (map, _) = accel::infer_auto_device_map(&model, Some(&memory), options).unwrap();
    assert_eq!(map.to_json().unwrap(), r#"{"":0}"#);
    let strict = DeviceMapOptions::new().allow_disk(false);
    let small = Value::from_json(r#"{"cpu": 100}"#).unwrap();
    assert_eq!(accel::infer_auto_device_map(&model, Some(&small), strict).unwrap_err().code(), ErrorCode::OutOfMemory);
    assert_eq!(accel::find_tied_parameters(&model).unwrap().to_json().unwrap(), "[]");
}
