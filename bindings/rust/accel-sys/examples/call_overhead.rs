//! Workload call_overhead in Rust: nanoseconds of one accel_tensor_numel(), the least of the rounds.
use accel_sys::*;
use std::ptr;
use std::time::Instant;

const CALLS: u32 = 1_000_000;
const ROUNDS: u32 = 10;

fn main() {
    let cpu = accel_device_t { r#type: ACCEL_DEVICE_CPU, index: -1 };
    let mut tensor = ptr::null_mut();
    assert_eq!(unsafe { accel_tensor_full(ptr::null(), 0, 0.0, ACCEL_DTYPE_FLOAT32, &cpu, &mut tensor) }, ACCEL_OK);
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let mut count = 0i64;
        let start = Instant::now();
        for _ in 0..CALLS {
            assert!(unsafe { accel_tensor_numel(tensor, &mut count) } >= 0);
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    unsafe { accel_tensor_release(tensor) };
    println!("{least:.3}");
}
