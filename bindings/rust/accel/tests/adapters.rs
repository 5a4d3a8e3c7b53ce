// SPDX-License-Identifier: Apache-2.0
//! Adapters of a model. The engine's tests compare their numbers with those of PEFT.
use accel::*;

const MODEL: &str = r#"{"model_type": "llama", "hidden_size": 8, "intermediate_size": 6, "vocab_size": 11,
    "num_hidden_layers": 2, "num_attention_heads": 2}"#;

fn logits(model: &Model) -> Result<Vec<f32>> {
    no_grad()?.run(|| model.forward(&Tensor::from_vec(vec![1i64, 5, 2], &[1, 3])?)?.to_vec())
}

/// Up to the rounding of kernels for other memory.
fn is_close(found: &[f32], expected: &[f32]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
}

fn new_model() -> Result<Model> {
    let model = Model::from_config(MODEL)?;
    model.train(false)?;
    Ok(model)
}

fn random(targets: &[&str]) -> Result<LoraOptions> {
    let names = targets.iter().map(Value::string).collect::<Result<Vec<_>>>()?;
    Ok(LoraOptions::new().rank(2).init(LoraInit::Random).target_modules(Value::list(names)?))
}

#[test]
fn adapters_are_chosen_for_the_model_and_for_calls() -> Result<()> {
    let model = new_model()?;
    let plain = logits(&model)?;
    model.add_adapter("one", random(&["q_proj", "v_proj"])?)?;
    let one = logits(&model)?;
    model.add_adapter("two", random(&["up_proj"])?.use_dora(true))?;
    let two = logits(&model)?;
    assert!(!is_close(&plain, &one) && !is_close(&one, &two) && !is_close(&two, &plain));
    model.activate_adapters(&["one"])?;
    assert!(is_close(&logits(&model)?, &one));
    {
        let _region = use_adapters(&["two"])?;
        assert!(is_close(&logits(&model)?, &two));
    }
    assert!(is_close(&use_adapters(&[])?.run(|| logits(&model))?, &plain));
    model.activate_adapters(&[])?;
    assert!(is_close(&logits(&model)?, &plain));
    Ok(())
}

#[test]
fn adapters_are_merged_and_removed() -> Result<()> {
    let model = new_model()?;
    model.add_adapter("one", random(&["q_proj"])?)?;
    model.merge_adapters()?;
    assert_eq!(model.remove_adapter("one").unwrap_err().code(), ErrorCode::InvalidState);
    model.unmerge_adapters()?;
    model.remove_adapter("one")?;
    assert_eq!(model.remove_adapter("one").unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(model.adapters()?.len(), 0);
    Ok(())
}

#[test]
fn folders_come_back() -> Result<()> {
    let (state, model, other) = (StateOptions::new().cpu(true).build()?, new_model()?, new_model()?);
    let folder = std::env::temp_dir().join(format!("accel-adapter-{}", std::process::id()));
    other.load_state_dict(&model.state_dict()?, Strict::Yes)?;
    model.add_adapter("one", random(&["q_proj"])?)?;
    let path = folder.to_str().expect("a path of text");
    state.save_adapter(&model, "one", path)?;
    other.load_adapter("again", path)?;
    assert!(is_close(&logits(&other)?, &logits(&model)?));
    std::fs::remove_dir_all(&folder).expect("the folder of the adapter");
    Ok(())
}
