//! Continues a text with a model from a folder of Hugging Face, and prints the words as they come:
//!
//!     generate FOLDER "Once upon a time" --max-tokens 200 --temperature 0.8 --top-p 0.95 --seed 1
//!
//! The most likely tokens are taken, or with a temperature tokens are drawn.
use accel::*;
use std::io::Write;
use std::sync::{Arc, Mutex};

const USAGE: &str = "usage: generate FOLDER PROMPT [--temperature 0] [--top-p 1] [--max-tokens 100] [--seed 0]";

type Anything<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn read_options(mut arguments: impl Iterator<Item = String>) -> Anything<GenerateOptions> {
    let mut options = GenerateOptions::new().max_new_tokens(100).seed(0);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        options = match name.as_str() {
            "--temperature" => match value.parse()? {
                0.0 => options,
                temperature => options.sample(true).temperature(temperature),
            },
            "--top-p" => options.top_p(value.parse()?),
            "--max-tokens" => options.max_new_tokens(value.parse()?),
            "--seed" => options.seed(value.parse()?),
            _ => return Err(USAGE.into()),
        };
    }
    Ok(options)
}

fn print_text(text: &Value) -> std::io::Result<()> {
    print!("{}", text.as_text().expect("a tokenizer gives texts"));
    std::io::stdout().flush()
}

fn main() -> Anything<()> {
    let mut arguments = std::env::args().skip(1);
    let (folder, prompt) = (arguments.next().ok_or(USAGE)?, arguments.next().ok_or(USAGE)?);
    let options = read_options(arguments)?;
    let state = StateOptions::new().build()?;
    let tokenizer = Tokenizer::load(&folder)?;
    let model = Model::from_folder(&folder, None)?;
    model.to(state.device(), None)?;
    model.train(false)?;

    let batch = tokenizer.encode_batch(&Value::list([Value::string(&prompt)?])?, None)?;
    let ids = batch.get("input_ids").and_then(Value::as_tensor).expect("of one text").to_device(state.device())?;
    let about = tokenizer.describe()?;
    let ends = about.get("eos_token_ids").expect("a list").try_clone()?;
    let stream = Arc::new(Mutex::new(DecodeStream::new(&tokenizer, DecodeOptions::new().skip_special_tokens(true))?));
    let decoder = Arc::clone(&stream);
    // A character may be several tokens: the stream gives what a token completes.
    model.generate_with(&ids, None, options.stop_tokens(ends), move |token| {
        print_text(&decoder.lock().expect("no panic").step(token.item_int()?)?)?;
        Ok(None)
    })?;
    print_text(&stream.lock().expect("no panic").finish()?)?;
    println!();
    state.end_training()?;
    Ok(())
}
