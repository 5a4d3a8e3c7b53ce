// SPDX-License-Identifier: Apache-2.0
//! Guesses of a smaller model. The engine's tests compare tokens with those of transformers.
use accel::*;
use std::sync::{Arc, Mutex};

const MODEL: &str = r#"{"model_type": "llama", "hidden_size": 16, "intermediate_size": 16, "vocab_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 2}"#;
const DRAFT: &str = r#"{"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "vocab_size": 20,
    "num_hidden_layers": 1, "num_attention_heads": 2}"#;

fn tokens_of(generated: &Value) -> Result<Vec<i64>> {
    generated.get("tokens").and_then(Value::as_tensor).expect("tokens").to_vec()
}

#[test]
fn a_draft_does_not_change_greedy_tokens() -> Result<()> {
    let (model, draft) = (Model::from_config(MODEL)?, Model::from_config(DRAFT)?);
    model.train(false)?;
    draft.train(false)?;
    let ids = Tensor::from_vec(vec![3i64, 1, 4], &[1, 3])?;
    let options = GenerateOptions::new().max_new_tokens(12);
    let alone = tokens_of(&model.generate(&ids, None, options.clone())?)?;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let guessed = model.generate_by_draft(&draft, &ids, None, options.clone().speculated_tokens(3), move |tokens| {
        ear.lock().expect("no panic").push(tokens.item_int()?);
        Ok(None)
    })?;
    assert_eq!(tokens_of(&guessed)?, alone);
    assert_eq!(*heard.lock().expect("no panic"), alone[3..]);
    Ok(())
}

#[test]
fn a_draft_in_training_is_refused() -> Result<()> {
    let (model, draft) = (Model::from_config(MODEL)?, Model::from_config(DRAFT)?);
    model.train(false)?;
    let ids = Tensor::from_vec(vec![3i64, 1, 4], &[1, 3])?;
    let error = model.generate_by_draft(&draft, &ids, None, GenerateOptions::new(), |_| Ok(None)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidState);
    Ok(())
}
