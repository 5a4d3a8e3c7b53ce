// SPDX-License-Identifier: Apache-2.0
//! The profiler: closures, and what was recorded.

use accel::{
    merge_traces, nn, span, Bias, DType, Device, ErrorCode, GroupByShapes, Model, Profile, ProfileOptions, State,
    StateOptions, Tensor,
};
use std::sync::{Arc, Mutex, MutexGuard};

/// One profiler at a time in a process: the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn state() -> State {
    StateOptions::new().cpu(true).build().unwrap()
}

fn compute(model: &Model) {
    let _span = span("forward of mine").unwrap();
    model.forward(&Tensor::full(&[3, 4], 1.0, DType::Float32, Device::Cpu).unwrap()).unwrap();
}

#[test]
fn a_body_is_recorded() {
    let _turn = turn();
    let (state, model) = (state(), nn::linear(4, 2, Bias::With).unwrap());
    let folder = std::env::temp_dir().join(format!("accel-rust-profile-{}", std::process::id()));
    let options = || ProfileOptions::new().wait(1).active(1).output_trace_dir(folder.to_str().unwrap());
    let cycles = Arc::new(Mutex::new(Vec::new()));
    let seen = cycles.clone();
    let ready = move |profile: &Profile| {
        seen.lock().unwrap().push(profile.step_number());
        Ok(())
    };
    let (profile, given) = state
        .profile_cycles(options(), ready, |profile| {
            for _ in 0..4 {
                compute(&model);
                profile.step()?;
            }
            Ok(7)
        })
        .unwrap();
    assert_eq!((given, cycles.lock().unwrap().as_slice()), (7, [2, 4].as_slice()));
    let table = Profile::table(&profile.key_averages(GroupByShapes::No).unwrap(), "count", 30).unwrap();
    assert!(table.contains("aten::linear") && table.contains("forward of mine"), "{table}");
    assert_eq!(profile.memory_timeline().unwrap_err().code(), ErrorCode::InvalidState);
    profile.export_trace(folder.join("own.json.gz")).unwrap();
    merge_traces(&[folder.to_str().unwrap()], folder.join("merged.json")).unwrap();
    assert!(std::fs::read_to_string(folder.join("merged.json")).unwrap().contains("\"rank 0 ("));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn errors_come_out_and_the_next_profile_begins() {
    let _turn = turn();
    let state = state();
    let failing = state.profile(ProfileOptions::new(), |_| -> accel::Result<()> {
        Err(accel::Error::new(ErrorCode::Corrupt, "worn out"))
    });
    assert_eq!(failing.err().unwrap().code(), ErrorCode::Corrupt);
    let answered = state.profile_cycles(ProfileOptions::new(), |_| Err("no room".into()), |_| Ok(()));
    assert!(answered.err().unwrap().message().contains("no room"));
    let unknown = state.profile(ProfileOptions::new().activities("gpu"), |_| Ok(()));
    assert_eq!(unknown.err().unwrap().code(), ErrorCode::InvalidArgument);
    let inner = state.profile(ProfileOptions::new(), |_| state.profile(ProfileOptions::new(), |_| Ok(())));
    assert_eq!(inner.err().unwrap().code(), ErrorCode::InvalidState);
    state.profile(ProfileOptions::new(), |_| Ok(())).unwrap();
}
