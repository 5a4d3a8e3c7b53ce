//! Trains a model from a folder of Hugging Face further: on a text, or on chats, one {"messages": [...]} in each line of a
//! file that ends with .jsonl, as the folder's template writes them.
//!
//!     accel launch --num-processes 2 --mixed-precision bf16 -- finetune FOLDER chats.jsonl OUTPUT --steps 1000
//!
//! Run again after an interruption, it goes on from its last checkpoint in OUTPUT. In the end OUTPUT has the files of a
//! model that is opened like FOLDER. With --lora RANK only an adapter of that rank is trained, and OUTPUT has PEFT's
//! files of it; with --quantize KIND, too, the weights below it are quantized as they are read (QLoRA).
use accel::*;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

const USAGE: &str =
    "usage: finetune FOLDER TEXT|CHATS.jsonl OUTPUT [--steps 100] [--batch 4] [--length 256] [--lr 1e-5] \
    [--save-every 50] [--seed 0] [--lora 0 [--quantize nf4|fp4|int4|int8]]";
const NO_LABEL: f64 = -100.0; // fills short rows; the loss leaves it out

type Anything<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the program was asked for.
struct Request {
    paths: [String; 3], // the folder, the data, the output
    steps: i64,
    batch: i64,
    length: i64,
    save_every: i64,
    seed: i64,
    lora: i64,
    lr: f64,
    quantize: Option<QuantizationOptions>,
}

impl Request {
    fn read() -> Anything<Self> {
        let mut arguments = std::env::args().skip(1);
        let mut path = || arguments.next().ok_or(USAGE);
        let paths = [path()?, path()?, path()?];
        let mut request = Request {
            paths,
            steps: 100,
            batch: 4,
            length: 256,
            save_every: 50,
            seed: 0,
            lora: 0,
            lr: 1e-5,
            quantize: None,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match name.as_str() {
                "--steps" => request.steps = value.parse()?,
                "--batch" => request.batch = value.parse()?,
                "--length" => request.length = value.parse()?,
                "--save-every" => request.save_every = value.parse()?,
                "--seed" => request.seed = value.parse()?,
                "--lora" => request.lora = value.parse()?,
                "--lr" => request.lr = value.parse()?,
                "--quantize" => request.quantize = Some(QuantizationOptions::new().kind(kind_of(&value)?)),
                _ => return Err(USAGE.into()),
            }
        }
        if request.quantize.is_some() && request.lora == 0 {
            return Err(USAGE.into()); // quantized weights are not trained
        }
        Ok(request)
    }

    /// Batches of [tokens, next tokens].
    fn loader(&self) -> Result<DataLoader> {
        let [folder, data, _] = &self.paths;
        let tokenizer = Tokenizer::load(folder)?;
        let rows = if data.ends_with(".jsonl") {
            Dataset::chats(data, None, &tokenizer, self.length, Malformed::Refuse)?
        } else {
            Dataset::encoded_text(data, None, &tokenizer, self.length)?
        };
        let options = DataLoaderOptions::new().batch_size(self.batch).shuffle(true).seed(self.seed);
        DataLoader::new(&rows, options.collate(Collate::Pad).padding_value(NO_LABEL))
    }
}

fn kind_of(name: &str) -> Anything<QuantizationKind> {
    Ok(match name {
        "nf4" => QuantizationKind::Nf4,
        "fp4" => QuantizationKind::Fp4,
        "int4" => QuantizationKind::Int4,
        "int8" => QuantizationKind::Int8,
        _ => return Err(USAGE.into()),
    })
}

/// How many steps are done, which checkpoints keep.
#[derive(Clone, Default)]
struct Step(Arc<AtomicI64>);

impl Checkpoint for Step {
    fn save(&mut self) -> CallbackResult<Value> {
        Ok(Value::from(self.0.load(Ordering::Relaxed)))
    }

    fn load(&mut self, state: &Value) -> CallbackResult {
        self.0.store(state.as_int().ok_or("the step is no number")?, Ordering::Relaxed);
        Ok(())
    }
}

/// The mean of the processes' losses.
fn train_step(state: &State, model: &Model, optimizer: &Optimizer, loader: &mut DataLoader) -> Result<f64> {
    let batch = loader.next().or_else(|| loader.next()).expect("an epoch has batches")?;
    let tokens = Op::find("aten::clamp_min", "")?.call1(&[batch.tensor_at(0)?.into(), 0i64.into()])?.into_tensor()?;
    let loss = state.accumulate(&[model])?.run(|| {
        let mut loss = model.forward(&tokens)?.cross_entropy(batch.tensor_at(1)?)?;
        state.backward(&mut loss)?;
        state.clip_grad_norm(model, 1.0, 2.0)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        Ok::<_, Error>(loss)
    })?;
    state.reduce(&loss, Reduction::Mean, 1.0)?.item()
}

fn main() -> Anything<()> {
    let request = Request::read()?;
    let [folder, _, output] = &request.paths;
    let state = StateOptions::new().build()?; // the launcher says which precision
    state.set_project(ProjectOptions::new().project_dir(output).automatic_checkpoint_naming(true).total_limit(2))?;
    state.set_seed(request.seed, DeviceSpecific::No, Deterministic::No)?;
    let model = Model::from_folder(folder, request.quantize.clone())?;
    model.to(state.device(), Some(DType::Float32))?;
    if request.lora > 0 {
        let lora = LoraOptions::new().rank(request.lora).alpha(2.0 * request.lora as f64);
        model.add_adapter("finetuned", lora)?;
    }
    let adamw = Optimizer::adamw(&model, AdamOptions::new().lr(request.lr))?;
    let (model, optimizer, mut loader) = state.prepare((&model, &adamw, &request.loader()?))?;
    let done = Step::default();
    state.register_for_checkpointing("step", done.clone())?;
    match state.load_state(None, None) {
        Err(error) if error.code() == ErrorCode::NotFound => (), // the first run
        loaded => loaded?,
    }

    let first = done.0.load(Ordering::Relaxed);
    state.print(&format!("from step: {first}"))?;
    for step in first + 1..=request.steps {
        let loss = train_step(&state, &model, &optimizer, &mut loader)?;
        done.0.store(step, Ordering::Relaxed);
        state.print(&format!("step {step} loss: {loss:.4}"))?;
        if step % request.save_every == 0 && step < request.steps {
            state.save_state(None, None)?;
        }
    }
    if request.lora > 0 {
        state.save_adapter(&model, "finetuned", output)?;
    } else {
        state.save_model_folder(&model, folder, output, None)?;
    }
    state.print(&format!("saved: {output}"))?;
    state.end_training()?;
    Ok(())
}
