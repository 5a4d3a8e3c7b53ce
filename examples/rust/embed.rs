//! Turns sentences into vectors by the last hidden states of a GPT-2, which the processes share:
//!
//!     accel launch --num-processes 2 -- embed [CONFIG [WEIGHTS]]
//!
//! CONFIG is a config.json of Hugging Face, WEIGHTS a model.safetensors. Without them a small model with random weights
//! shows the way. Every byte is a token here.
use accel::*;
use std::sync::{Arc, Mutex};

const CONFIG: &str = r#"{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 128, "n_layer": 4,
    "n_head": 4}"#;
const SENTENCES: [&str; 4] =
    ["the cat sat on the mat", "the cat sat on the hat", "gradients travel in buckets", "1 2 3 4 5 6 7 8"];

/// A model that gives, instead of the scores of the next token, the state from which they are computed.
struct Embedder {
    model: Model,
    hidden: Arc<Mutex<Option<Tensor>>>,
}

impl Embedder {
    fn new(model: Model) -> Result<Self> {
        let hidden = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&hidden);
        model.child("transformer.ln_f")?.add_hook(When::AfterForward, move |_, outputs| {
            *seen.lock().expect("no panic") = Some(outputs.tensor_at(0)?.detach()?);
            Ok(None)
        })?;
        model.train(false)?;
        Ok(Embedder { model, hidden })
    }

    /// The mean over the positions, of length 1: `[1, width]`.
    fn embed(&self, text: &str) -> Result<Tensor> {
        let tokens: Vec<i64> = text.bytes().map(i64::from).collect();
        let length = tokens.len() as i64;
        no_grad()?.run(|| {
            self.model.forward(&Tensor::from_vec(tokens, &[1, length])?)?;
            let hidden = self.hidden.lock().expect("no panic").take().expect("the hook has run");
            let mean = hidden.mean_dim(Some(&[1]), false)?;
            mean.div(&mean.norm(2)?)
        })
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let config = arguments.next().unwrap_or_else(|| CONFIG.into());
    let state = StateOptions::new().cpu(true).build()?;
    state.set_seed(0, false, false)?;
    let model = Model::from_config(&config)?;
    if let Some(weights) = arguments.next() {
        model.load_state_dict(&load(weights)?, false)?;
    }
    state.print(&format!("processes: {}", state.num_processes()))?;
    state.print(&format!("parameters: {}", model.num_parameters()?))?;

    let embedder = Embedder::new(model)?;
    let mine = state.split_range(SENTENCES.len() as i64)?;
    let vectors = SENTENCES[mine.start as usize..mine.end as usize]
        .iter()
        .map(|sentence| embedder.embed(sentence))
        .collect::<Result<Vec<_>>>()?;
    let vectors = state.gather_uneven(&ops::cat(&vectors.iter().collect::<Vec<_>>(), 0)?)?;
    let similar = vectors.matmul(&vectors.t()?)?.to_vec::<f32>()?;
    state.print(&format!("vectors: {:?}", vectors.shape()?))?;
    for (other, cosine) in similar[..SENTENCES.len()].iter().enumerate().skip(1) {
        state.print(&format!("similarity of sentences 0 and {other}: {cosine:.4}"))?;
    }
    state.end_training()
}
