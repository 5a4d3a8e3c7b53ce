//! Makes a small GPT-2 and keeps it in a folder as configuration and weights, then loads it from there, as any other GPT-2,
//! and embeds texts with it. The processes share the texts:
//!
//!     accel launch --num-processes 2 -- embed FOLDER
use accel::*;
use std::path::Path;
use std::sync::{Arc, Mutex};

const CONFIG: &str = r#"{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 16, "n_layer": 2,
    "n_head": 2}"#;
const WIDTH: usize = 16;
const TEXTS: [&str; 3] = ["the cat sat on the mat", "a cat sat on a mat", "gradients are averaged"];

/// A model, and what its last layer norm gave.
struct Embedder {
    model: Model,
    hidden: Arc<Mutex<Option<Tensor>>>,
}

impl Embedder {
    fn load(folder: &Path) -> Result<Self> {
        let model = Model::from_config(&folder.join("config.json").to_string_lossy())?;
        model.load_state_dict(&load(folder.join("model.safetensors"), None)?, Strict::Yes)?;
        model.train(false)?;
        let hidden = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&hidden);
        model.child("transformer.ln_f")?.add_hook(When::AfterForward, move |_, outputs| {
            *seen.lock().expect("no panic") = Some(outputs.tensor_at(0)?.shallow_clone());
            Ok(None)
        })?;
        Ok(Embedder { model, hidden })
    }

    /// The mean of the last hidden states: [1, WIDTH]. Every byte of the text is a token.
    fn embed(&self, text: &str) -> Result<Tensor> {
        let tokens: Vec<i64> = text.bytes().map(i64::from).collect();
        let length = tokens.len() as i64;
        self.model.forward(&Tensor::from_vec(tokens, &[1, length])?)?;
        let hidden = self.hidden.lock().expect("no panic").take().expect("the hook has run");
        hidden.mean_dim(Some(&[1]), KeepDim::No)
    }
}

fn similarity(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    product(a, b) / (product(a, a).sqrt() * product(b, b).sqrt())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| panic!("usage: embed FOLDER"));
    let folder = Path::new(&folder);
    let state = StateOptions::new().cpu(true).build()?;
    if state.is_main_process() {
        state.set_seed(7, DeviceSpecific::No, Deterministic::No)?;
        state.save_model(&Model::from_config(CONFIG)?, folder, None)?;
        std::fs::write(folder.join("config.json"), CONFIG)?;
    }
    state.wait_for_everyone()?;
    let embedder = Embedder::load(folder)?;
    state.print(&format!("parameters: {}", embedder.model.num_parameters()?))?;

    let mine = state.split_range(TEXTS.len() as i64)?;
    let texts = &TEXTS[mine.start as usize..mine.end as usize];
    let embeddings = no_grad()?.run(|| {
        let rows = texts.iter().map(|text| embedder.embed(text)).collect::<Result<Vec<_>>>()?;
        state.gather_uneven(&Value::list(rows)?.concatenate(0)?)
    })?;
    let embeddings = embeddings.as_tensor().expect("rows of tensors give one").to_vec::<f32>()?;
    let rows: Vec<&[f32]> = embeddings.chunks(WIDTH).collect();
    for (index, row) in rows.iter().enumerate() {
        state.print(&format!("text {}: {:.4} {:.4} {:.4} {:.4}", index + 1, row[0], row[1], row[2], row[3]))?;
    }
    for other in [1, 2] {
        state.print(&format!("similarity 1 {}: {:.4}", other + 1, similarity(rows[0], rows[other])))?;
    }
    state.end_training()?;
    Ok(())
}
