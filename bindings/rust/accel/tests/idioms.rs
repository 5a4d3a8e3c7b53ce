// SPDX-License-Identifier: Apache-2.0
//! What makes tensors feel at home: operators, indices, text.
use accel::prelude::*;

type Outcome = accel::Result<()>;

fn numbers(tensor: accel::Result<Tensor>) -> Vec<f32> {
    tensor.unwrap().to_vec().unwrap()
}

#[test]
fn operators_take_owned_borrowed_results_and_numbers() -> Outcome {
    let a = || Tensor::from_slice(&[6.0f32, 8.0], &[2]);
    let b = || Tensor::from_slice(&[2.0f32, 4.0], &[2]);
    let (x, y) = (a()?, b()?);
    let expected = [8.0, 12.0];
    for sum in [&x + &y, &x + b()?, a()? + &y, a()? + b()?, &x + b(), a()? + b(), a() + &y, a() + b()?] {
        assert_eq!(numbers(sum), expected);
    }
    // Each operator, and each side of a number.
    assert_eq!(numbers(&x - &y), [4.0, 4.0]);
    assert_eq!(numbers(&x * &y), [12.0, 32.0]);
    assert_eq!(numbers(&x / &y), [3.0, 2.0]);
    assert_eq!(numbers(-&x), [-6.0, -8.0]);
    let negative = -a()?;
    assert_eq!(numbers(negative), [-6.0, -8.0]);
    assert_eq!(numbers(&x - 1.0), [5.0, 7.0]);
    assert_eq!(numbers(1.0 - &x), [-5.0, -7.0]);
    assert_eq!(numbers(2.0 * a()?), [12.0, 16.0]);
    assert_eq!(numbers(24.0 / &x), [4.0, 3.0]);
    assert_eq!(numbers(1.0 + &x), [7.0, 9.0]);
    assert_eq!(numbers(&x / ops::Scalar::from(2.0f32)), [3.0, 4.0]);
    // Numbers of any type on the right, and a Scalar on both sides of a result.
    assert_eq!(numbers(&x * 0.5f32), [3.0, 4.0]);
    assert_eq!(numbers(a()? / 2usize), [3.0, 4.0]);
    assert_eq!(numbers(&x - 2i32), [4.0, 6.0]);
    assert_eq!(numbers((&x + &y) * ops::Scalar::from(2)), [16.0, 24.0]);
    assert_eq!(numbers(ops::Scalar::from(2) - (&x - &y)), [-2.0, -2.0]);
    // Chains need one `?` where a number or two results meet.
    assert_eq!(numbers((&x + &y)? * 0.5), [4.0, 6.0]);
    assert_eq!(numbers(&x * (&x - &y)), [24.0, 32.0]);
    // Integers stay integers.
    let whole = Tensor::from_slice(&[1i64, 2], &[2])?;
    assert_eq!((2 * (&whole + 1)?)?.to_vec::<i64>()?, [4, 6]);
    assert_eq!((&whole * 2u8)?.dtype(), DType::Int64);
    // The first failure is that of all.
    let wrong = Tensor::zeros(&[3], DType::Float32, Device::Cpu)?;
    let error = (&x + (&x + &wrong)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Torch);
    Ok(())
}

#[test]
fn indices_take_parts_of_the_same_memory() -> Outcome {
    let x = ops::arange(0, 24, None)?.reshape(&[2, 3, 4])?;
    assert_eq!(x.i((0, 1..3, ..))?.to_vec::<i64>()?, [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(x.i((.., -1, 1..=2))?.to_vec::<i64>()?, [9, 10, 21, 22]);
    assert_eq!(x.i((.., .., -2..))?.shape(), [2, 3, 2]);
    assert_eq!(x.i((.., .., ..=-2))?.shape(), [2, 3, 3]);
    assert_eq!(x.i((1, NewAxis, Ellipsis, 0usize))?.shape(), [1, 3]);
    assert_eq!(x.i(1)?.shape(), [3, 4]);
    assert_eq!(x.i((.., 2..2))?.shape(), [2, 0, 4]);
    // Lists of places, and truths, are copies.
    assert_eq!(x.i((1, [2, -3], 0u32))?.to_vec::<i64>()?, [20, 12]);
    let places = vec![1i64];
    assert_eq!(x.i((0, &places, &places[..]))?.to_vec::<i64>()?, [5]);
    let mask = x.i((0, .., 0))?.gt_scalar(3)?;
    assert_eq!(x.i((.., &mask, 3))?.to_vec::<i64>()?, [7, 11, 19, 23]);
    let error = x.i(&mask).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ShapeMismatch);
    assert!(error.message().contains("a mask of shape [3] for a dimension of size 2"), "{error:?}");
    assert_eq!(x.i((0, [0, 3])).unwrap_err().code(), ErrorCode::InvalidArgument);
    let mut row = x.i((1, 2))?;
    row.zero_()?;
    assert_eq!(x.i((1, 2, 3))?.item_int()?, 0);
    for wrong in [x.i(2), x.i((0, 0..4)), x.i((0, 0, 0, 0)), x.i((Ellipsis, Ellipsis)), x.i(-3)] {
        let error = wrong.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    }
    assert!(x.i((0, 7)).unwrap_err().message().contains("index 7 of a dimension of size 3"));
    Ok(())
}

#[test]
fn tensors_show_their_numbers() -> Outcome {
    let shown = |tensor: &Tensor| tensor.to_string();
    assert_eq!(shown(&Tensor::scalar(1.5f32)?), "1.5000");
    assert_eq!(shown(&Tensor::from_slice(&[1.0f64, 20.0], &[2])?), "[ 1., 20.]");
    assert_eq!(shown(&Tensor::from_slice(&[1i64, -20], &[2])?), "[  1, -20]");
    assert_eq!(shown(&Tensor::from_slice(&[1u8, 0], &[2])?.to_dtype(DType::Bool)?), "[ true, false]");
    assert_eq!(shown(&Tensor::from_slice(&[1e-6f32, 1.0], &[2])?), "[1.0000e-6,  1.0000e0]");
    assert_eq!(shown(&Tensor::from_slice(&[f32::NAN, f32::NEG_INFINITY, 0.5], &[3])?), "[   nan,   -inf, 0.5000]");
    assert_eq!(shown(&Tensor::zeros(&[0, 2], DType::Float32, Device::Cpu)?), "[]");
    let block = ops::arange(0, 8, None)?.reshape(&[2, 2, 2])?;
    assert_eq!(shown(&block), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
    // Lines of at most 80 characters; of many numbers the ends.
    let long = shown(&ops::arange(0, 100, None)?);
    assert!(long.lines().count() > 3 && long.lines().all(|line| line.len() <= 80), "{long}");
    assert_eq!(shown(&ops::arange(0, 2000, None)?), "[   0,    1,    2, ..., 1997, 1998, 1999]");
    let large = shown(&ops::arange(0, 10000, None)?.reshape(&[100, 100])?);
    assert_eq!((large.lines().count(), large.matches("...").count()), (7, 7), "{large}");
    assert!(large.contains("[9900, 9901, 9902, ..., 9997, 9998, 9999]]"), "{large}");
    let nothing = Tensor::empty(&[2], DType::Float32, Device::Meta)?;
    assert_eq!(shown(&nothing), "Tensor(float32, [2], Meta)");
    Ok(())
}

#[test]
fn everything_has_a_debug() -> Outcome {
    let options = StateOptions::new().cpu(true).num_processes(1).process_index(0);
    assert_eq!(format!("{options:?}"), "StateOptions { cpu: true, process_index: 0, num_processes: 1 }");
    let state = options.build()?;
    assert_eq!(format!("{state:?}"), "State(rank 0 of 1 on cpu)");
    let options = FsdpOptions::new().param_dtype(String::from("bf16")).sharding_strategy(ShardingStrategy::FullShard);
    let inside = format!("{:?}", PrepareModelOptions::new().fsdp(options));
    assert!(inside.contains(r#"param_dtype: "bf16""#) && inside.contains("sharding_strategy: FullShard"), "{inside}");
    let model = nn::linear(1, 1, Bias::With)?;
    assert_eq!(format!("{model:?}"), "Model(Linear, 2 parameters)");
    assert!(format!("{:?}", (&model, model.tensor("weight")?)).contains("Tensor(float32, [1, 1], Cpu)"));
    assert!(!format!("{:?}", accel::Arg::from(3)).is_empty());
    drop(model);
    state.end_training()
}
