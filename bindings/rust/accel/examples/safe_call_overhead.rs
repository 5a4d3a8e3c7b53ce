//! Workload call_overhead in the safe layer: nanoseconds of one Tensor::numel(), the least of the rounds. With the argument
//! `add`, of one operator on two tensors of one element.
use accel::{Result, Tensor};
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
    let tensor = Tensor::scalar(0.0f32)?;
    let least = if std::env::args().nth(1).as_deref() == Some("add") {
        least_of_rounds(CALLS / 10, || tensor.add(&tensor).map(drop))?
    } else {
        least_of_rounds(CALLS, || tensor.numel().map(|_| ()))?
    };
    println!("{least:.3}");
    Ok(())
}
