//! Trains and saves in the middle; with `--resume` it goes on from there, and repeats every loss bit by bit:
//!
//!     accel launch --num-processes 2 -- checkpoint FOLDER
//!     accel launch --num-processes 2 -- checkpoint FOLDER --resume
use accel::*;
use std::path::PathBuf;

const STEPS: usize = 6;

/// All that is prepared: a checkpoint holds it.
struct Training {
    state: State,
    model: Model,
    optimizer: Optimizer,
    scheduler: Scheduler,
    loader: DataLoader,
}

impl Training {
    fn begin() -> Result<Self> {
        let state = State::from_environment()?;
        state.set_seed(0, false, false)?;
        let x = ops::arange(0, 64, Some(DType::Float32))?.div_scalar(64)?.reshape(&[32, 2])?;
        let y = x.sin()?.sum_dim(Some(&[1]), true)?;
        let options = DataLoaderOptions::new().batch_size(4).shuffle(true);
        let loader = DataLoader::new(&Dataset::tensors(&[&x, &y])?, options)?;
        let model = nn::sequential(&[
            &nn::linear(2, 16, true)?,
            &nn::activation("tanh")?,
            &nn::dropout(0.1)?,
            &nn::linear(16, 1, true)?,
        ])?;
        let adamw = Optimizer::adamw(&model, AdamOptions::new().lr(0.01))?;
        let decay = Scheduler::exponential(&adamw, 0.9)?;
        let (model, optimizer, scheduler, loader) = state.prepare((&model, &adamw, &decay, &loader))?;
        Ok(Training { state, model, optimizer, scheduler, loader })
    }

    /// The mean of the ranks' losses of one step.
    fn step(&mut self) -> Result<f64> {
        let batch = self.loader.next().or_else(|| self.loader.next()).expect("an epoch has batches")?;
        let Training { state, model, optimizer, scheduler, .. } = self;
        let loss = state.accumulate(&[model])?.run(|| {
            let mut loss = model.forward(batch.tensor_at(0)?)?.mse_loss(batch.tensor_at(1)?)?;
            state.backward(&mut loss)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            loss.detach()
        })?;
        state.reduce(&loss, Reduction::Mean, 1.0)?.item()
    }

    fn steps(&mut self) -> Result<Vec<f64>> {
        (0..STEPS).map(|_| self.step()).collect()
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| panic!("usage: checkpoint FOLDER [--resume]")));
    let resumes = arguments.next().map_or(false, |argument| argument == "--resume");

    let mut training = Training::begin()?;
    training.state.print(&format!("processes: {}", training.state.num_processes()))?;
    if resumes {
        training.state.load_state(&folder)?;
    } else {
        let losses = training.steps()?;
        training.state.print(&format!("losses before the checkpoint: {losses:?}"))?;
        training.state.save_state(&folder)?;
    }
    let losses = training.steps()?;
    training.state.print(&format!("losses after the checkpoint: {losses:?}"))?;
    training.state.end_training()
}
