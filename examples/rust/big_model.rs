//! Generates tokens with a Llama from a folder with its config.json and safetensors, also when it is larger than the
//! accelerator or the memory:
//!
//!     big_model FOLDER --tokens 1,15043,29892 --new-tokens 20 --max-memory '{"0": "8GiB", "cpu": "16GiB"}'
//!     big_model FOLDER --device-map '{"model.layers": "disk", "": "cpu"}'
use accel::*;
use std::io::Write;
use std::time::Instant;

const USAGE: &str = "usage: big_model FOLDER [--tokens 1,2,3] [--new-tokens 8] [--max-memory JSON] [--device-map JSON]";

type Anything<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the program was asked for.
struct Request {
    folder: String,
    tokens: Vec<i64>,
    new_tokens: usize,
    max_memory: Option<Value>,
    device_map: Value,
}

impl Request {
    fn read() -> Anything<Self> {
        let mut arguments = std::env::args().skip(1);
        let folder = arguments.next().ok_or(USAGE)?;
        let device_map = Value::string("auto")?;
        let mut request = Request { folder, tokens: vec![1], new_tokens: 8, max_memory: None, device_map };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match name.as_str() {
                "--tokens" => {
                    request.tokens = value.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?
                }
                "--new-tokens" => request.new_tokens = value.parse()?,
                "--max-memory" => request.max_memory = Some(Value::from_json(&value)?),
                "--device-map" => request.device_map = Value::from_json(&value)?,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(request)
    }
}

/// A model, and the keys and values of the tokens that it has seen.
struct Generator {
    model: Model,
    past: Value,
}

impl Generator {
    fn new(model: Model) -> Result<Self> {
        Ok(Generator { model, past: Value::list(Vec::<Value>::new())? })
    }

    /// The most probable token after these.
    fn next(&mut self, tokens: &[i64]) -> Result<i64> {
        let input = Tensor::from_vec(tokens.to_vec(), &[1, tokens.len() as i64])?;
        let output = self.model.call(&[(&input).into(), (&self.past).into()])?;
        self.past = output.at(1).expect("logits, keys and values").try_clone()?;
        let last =
            Op::find("aten::select", "int")?.call1(&[output.tensor_at(0)?.into(), 1i64.into(), (-1i64).into()])?;
        last.into_tensor()?.argmax(None, KeepDim::No)?.item_int()
    }
}

/// The most memory that the process has had, mapped files included.
fn peak_mebibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn main() -> Anything<()> {
    let request = Request::read()?;
    let state = StateOptions::new().build()?;
    let config = format!("{}/config.json", request.folder);
    let model = init_empty_weights(None)?.run(|| Model::from_config(&config))?;
    model.train(false)?;
    let options = DispatchOptions::new().no_split_module_classes("LlamaDecoderLayer");
    let map = state.load_checkpoint_and_dispatch(
        &model,
        &request.folder,
        Some(&request.device_map),
        request.max_memory.as_ref(),
        options,
    )?;
    println!("parameters: {}", model.num_parameters()?);
    println!("device map: {}", map.expect("the model was dispatched").to_json()?);

    no_grad()?.run(|| -> Result<()> {
        let mut generator = Generator::new(model)?;
        let mut token = generator.next(&request.tokens)?;
        let begin = Instant::now();
        print!("tokens: {token}");
        for _ in 1..request.new_tokens {
            token = generator.next(&[token])?;
            print!(" {token}");
            std::io::stdout().flush().ok();
        }
        println!("\ntokens a second: {:.1}", (request.new_tokens - 1) as f64 / begin.elapsed().as_secs_f64());
        Ok(())
    })?;
    println!("peak memory in MiB: {}", peak_mebibytes().unwrap_or(0));
    state.end_training()?;
    Ok(())
}
