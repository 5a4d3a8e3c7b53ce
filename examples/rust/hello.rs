//! Every process says its rank, and all of them see all ranks: accel launch --num-processes 2 -- hello
use accel::{State, Tensor, Value};

fn main() -> accel::Result<()> {
    let state = State::from_environment()?;
    let rank = Tensor::scalar(i64::from(state.process_index()))?.to_device(state.device())?;
    let ranks = state.gather(&rank)?;
    state.print(&Value::from(ranks).to_json()?)?;
    state.end_training()
}
