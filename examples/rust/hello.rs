//! Every process says its rank, and all of them see all ranks: accel launch --num-processes 2 -- hello
use accel::{State, Tensor};

fn main() -> accel::Result<()> {
    let state = State::from_environment()?;
    let rank = Tensor::scalar(i64::from(state.process_index()))?.to_device(state.device())?;
    let ranks = state.gather(&rank)?;
    state.print(&format!("processes: {}", state.num_processes()))?;
    state.print(&format!("ranks: {:?}", ranks.to_vec::<i64>()?))?;
    state.end_training()
}
