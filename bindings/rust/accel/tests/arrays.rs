// SPDX-License-Identifier: Apache-2.0
//! Tensors from and as arrays of the crate `ndarray`.
#![cfg(feature = "ndarray")]

use accel::{ErrorCode, Tensor};
use ndarray::{arr2, s, Array, Array3, Axis, Ix2};

#[test]
fn arrays_become_tensors_where_they_are() {
    let array = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 100 + j * 10 + k) as i64);
    let memory = array.as_ptr();
    let tensor = Tensor::from_array(array.clone()).unwrap();
    assert_eq!(tensor.shape(), [2, 3, 4]);
    tensor.with_array::<i64, _>(|view| assert_eq!(view, array.view().into_dyn())).unwrap();
    let moved = Tensor::from_array(array).unwrap();
    assert_eq!(moved.data_ptr().unwrap() as *const i64, memory);
    assert_eq!(moved.with_array::<i64, _>(|view| view.as_ptr()).unwrap(), memory);
    // Column-major, and a part of a larger array.
    let transposed = Tensor::from_array(arr2(&[[1.0f64, 2.0], [3.0, 4.0]]).reversed_axes()).unwrap();
    assert_eq!(transposed.to_vec::<f64>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    let part = arr2(&[[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]]).slice_move(s![.., 1..]);
    assert_eq!(Tensor::from_array(part).unwrap().sum().unwrap().item().unwrap(), 16.0);
    assert_eq!(Tensor::from_array(Array::<f32, Ix2>::zeros((0, 3))).unwrap().shape(), [0, 3]);
}

#[test]
fn views_follow_the_strides_of_the_tensor() {
    let mut tensor = Tensor::from_vec((0..6).map(|i| i as f32).collect(), &[2, 3]).unwrap();
    assert_eq!(tensor.t().unwrap().with_array::<f32, _>(|view| view[[2, 1]]).unwrap(), 5.0);
    tensor.with_array_mut::<f32, _>(|mut view| view.index_axis_mut(Axis(1), 0).fill(7.0)).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [7.0, 1.0, 2.0, 7.0, 4.0, 5.0]);
    assert_eq!(tensor.select(0, 1).unwrap().with_array::<f32, _>(|view| view.sum()).unwrap(), 16.0);
    let three = Tensor::scalar(3.0f32).unwrap();
    assert_eq!(three.with_array::<f32, _>(|view| view.ndim()).unwrap(), 0);
    let products = Tensor::with_arrays::<f32, _>(&[&tensor, &three], |views| (&views[0] * &views[1]).sum());
    assert_eq!(products.unwrap(), 78.0);
}

#[test]
fn what_cannot_be_viewed_is_refused() {
    let mut backwards = arr2(&[[1.0f32, 2.0]]);
    backwards.invert_axis(Axis(1));
    assert_eq!(Tensor::from_array(backwards).unwrap_err().code(), ErrorCode::Unsupported);
    let row = Tensor::from_slice(&[1.0f32, 2.0], &[1, 2]).unwrap();
    let mut expanded = row.expand(&[3, 2]).unwrap();
    assert_eq!(expanded.with_array::<f32, _>(|view| view.sum()).unwrap(), 9.0);
    assert_eq!(expanded.with_array_mut::<f32, _>(|_| ()).unwrap_err().code(), ErrorCode::InvalidState);
    assert_eq!(row.with_array::<f64, _>(|_| ()).unwrap_err().code(), ErrorCode::TypeMismatch);
}
