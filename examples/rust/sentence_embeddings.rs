//! The embeddings of sentences, one line of numbers for each, by an encoder from a folder of Hugging Face such as
//! all-MiniLM-L6-v2:
//!
//!     sentence_embeddings FOLDER "A man is eating." "Someone has lunch."
//!
//! An embedding is the mean over the tokens, of length 1: the product of two says how much they have in common.
use accel::*;

const MAX_TOKENS: i64 = 256;
const BATCH: usize = 32;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    assert!(arguments.len() >= 2, "usage: sentence_embeddings FOLDER SENTENCE...");
    let state = StateOptions::new().build()?;
    let tokenizer = Tokenizer::load(&arguments[0])?;
    let embedder = Model::from_folder(&arguments[0], None)?.sentence_embedding(None)?;
    embedder.to(state.device(), None)?;
    embedder.train(false)?;

    for sentences in arguments[1..].chunks(BATCH) {
        let texts = sentences.iter().map(Value::string).collect::<Result<Vec<_>>>()?;
        let batch = tokenizer.encode_batch(&Value::list(texts)?, EncodeOptions::new().max_length(MAX_TOKENS))?;
        let inputs = batch.to_device(state.device(), &[])?;
        let rows = no_grad()?.run(|| embedder.call_kw(&[], Some(&inputs))?.into_tensor())?;
        let width = rows.shape()[1] as usize;
        for row in rows.to_vec::<f32>()?.chunks(width) {
            let numbers: Vec<String> = row.iter().map(|number| format!("{number:.4}")).collect();
            println!("{}", numbers.join(" "));
        }
    }
    state.end_training()
}
