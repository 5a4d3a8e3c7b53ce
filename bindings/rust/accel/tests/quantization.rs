// SPDX-License-Identifier: Apache-2.0
//! Quantized weights of a model. The engine's tests compare them with those of bitsandbytes.
use accel::*;

const MODEL: &str = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 32, "vocab_size": 11,
    "num_hidden_layers": 1, "num_attention_heads": 2}"#;

fn logits(model: &Model) -> Result<Vec<f32>> {
    no_grad()?.run(|| model.forward(&Tensor::from_vec(vec![1i64, 5, 2], &[1, 3])?)?.to_vec())
}

#[test]
fn weights_become_codes() -> Result<()> {
    let model = Model::from_config(MODEL)?;
    model.train(false)?;
    let plain = logits(&model)?;
    let options = QuantizationOptions::new().kind(QuantizationKind::Nf4).has_double_quantization(true);
    assert_eq!(model.quantize(options)?.len(), 7);
    let quantized = logits(&model)?;
    assert!(plain.iter().zip(&quantized).any(|(a, b)| (a - b).abs() > 1e-6));
    assert!(plain.iter().zip(&quantized).all(|(a, b)| (a - b).abs() < 0.5));
    assert_eq!(model.quantize(None).unwrap_err().code(), ErrorCode::InvalidState);
    Ok(())
}

#[test]
fn wrong_options_are_refused() -> Result<()> {
    let model = Model::from_config(MODEL)?;
    let names = Value::list([Value::string("nowhere")?])?;
    assert_eq!(model.quantize(QuantizationOptions::new().skip_modules(names)).unwrap_err().code(), ErrorCode::NotFound);
    let without_kind = Model::from_folder("nowhere", QuantizationOptions::new().group(64)).unwrap_err();
    assert_eq!(without_kind.code(), ErrorCode::InvalidArgument);
    let missing = Model::from_folder("nowhere", QuantizationOptions::new().kind(QuantizationKind::Int4)).unwrap_err();
    assert_eq!(missing.code(), ErrorCode::NotFound);
    Ok(())
}
