// SPDX-License-Identifier: Apache-2.0
//! Parameters of the program's own, over its own memory.
use accel::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

mod ranks;

struct Counted(#[allow(dead_code)] Vec<f32>, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn foreign_memory_is_shared_and_its_owner_is_dropped_last() {
    let drops = Arc::new(AtomicUsize::new(0));
    let over = |shape: &[i64], strides: Option<&[i64]>| {
        let mut numbers = vec![1.0f32, 2.0, 3.0, 4.0];
        let data = numbers.as_mut_ptr();
        let owner = Counted(numbers, drops.clone());
        // SAFETY: the owner has four numbers, which move without them.
        unsafe { Tensor::from_raw_parts(data.cast(), shape, strides, DType::Float32, Device::Cpu, owner) }
    };
    let tensor = over(&[2, 2], None).unwrap();
    let row = tensor.i(1).unwrap();
    drop(tensor);
    assert_eq!((row.to_vec::<f32>().unwrap(), drops.load(Ordering::SeqCst)), (vec![3.0, 4.0], 0));
    drop(row);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    // Where it fails, too.
    assert_eq!(over(&[2, 2], Some(&[1])).unwrap_err().code(), ErrorCode::ShapeMismatch);
    assert_eq!(over(&[-1], None).unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(drops.load(Ordering::SeqCst), 3);
    // SAFETY: it is not used.
    let wrong = unsafe { Tensor::over_slice(&mut [1.0f32], &[2]) };
    assert_eq!(wrong.unwrap_err().code(), ErrorCode::ShapeMismatch);
}

#[test]
fn gradients_by_name_update_the_memory_of_the_program() {
    let weights = ranks::run(2, |state| {
        let rank = state.process_index() as f32;
        let (mut weight, mut bias) = (vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [10.0 * rank; 2]);
        // SAFETY: both outlive the parameters, and are used only between their steps.
        let tensors = unsafe {
            [
                ("layer.weight", Tensor::over_slice(&mut weight, &[2, 3]).unwrap()),
                ("layer.bias", Tensor::over_slice(&mut bias, &[2]).unwrap()),
            ]
        };
        let mut parameters = state.register_parameters(tensors, None).unwrap();
        assert_eq!(bias, [0.0; 2], "rank 0's values");
        let sgd = Optimizer::sgd(&parameters.module().unwrap(), SgdOptions::new().lr(1.0)).unwrap();
        let optimizer = state.prepare_optimizer(&sgd).unwrap();
        let full = |shape: &[i64], number: f64| Tensor::full(shape, number, DType::Float32, Device::Cpu).unwrap();

        // What is wrong is named, and changes nothing.
        let missing = parameters.step(&optimizer, [("layer.bias", full(&[2], 1.0))], None).unwrap_err();
        assert!(
            missing.code() == ErrorCode::InvalidArgument && missing.message().contains("layer.weight"),
            "{missing:?}"
        );
        let both = |shape: &[i64]| [("layer.bias", full(&[2], f64::from(rank))), ("layer.weight", full(shape, 1.0))];
        let shape = parameters.step(&optimizer, both(&[3, 2]), None).unwrap_err();
        assert!(shape.code() == ErrorCode::ShapeMismatch && shape.message().contains("layer.weight"), "{shape:?}");

        let norm = parameters.step_with_norm(&optimizer, both(&[2, 3]), None).unwrap().unwrap();
        assert!((norm - (6.0f64 + 0.5).sqrt()).abs() < 1e-5, "{norm}");
        drop((optimizer, sgd, parameters));
        (weight, bias)
    });
    for (weight, bias) in weights {
        assert_eq!((weight, bias), (vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [-0.5; 2]));
    }
}
