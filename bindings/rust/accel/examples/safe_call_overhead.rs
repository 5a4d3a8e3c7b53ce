//! Workload call_overhead in the safe layer: nanoseconds of one Tensor::numel(), the least of the rounds. With the argument
//! `operator`, of one addition of four numbers, as in bench/call_overhead/call_overhead.c.
use accel::{DType, Device, Result, Tensor};
use std::time::Instant;

const CALLS: u32 = 1_000_000;
const ROUNDS: u32 = 10;

fn least_of_rounds(calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(least)
}

fn main() -> Result<()> {
    let least = if std::env::args().nth(1).as_deref() == Some("operator") {
        let tensor = Tensor::full(&[4], 1.0, DType::Float32, Device::Cpu)?;
        least_of_rounds(CALLS / 20, || tensor.add(&tensor).map(drop))?
    } else {
        let tensor = Tensor::scalar(0.0f32)?;
        least_of_rounds(CALLS, || {
            assert_eq!(tensor.numel(), 1);
            Ok(())
        })?
    };
    println!("{least:.3}");
    Ok(())
}
