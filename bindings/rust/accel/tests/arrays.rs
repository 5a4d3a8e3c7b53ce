//! Tensors from and as arrays of the crate `ndarray`.
#![cfg(feature = "ndarray")]

use accel::{ErrorCode, Tensor};
use ndarray::{arr2, s, Array, Array3, Axis, Ix2};

#[test]
fn arrays_become_tensors_where_they_are() {
    let array = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 100 + j * 10 + k) as i64);
    let memory = array.as_ptr();
    let tensor = Tensor::from_array(array.clone()).unwrap();
    assert_eq!(tensor.shape().unwrap(), [2, 3, 4]);
    assert_eq!(tensor.array_view::<i64>().unwrap().view(), array.view().into_dyn());
    let moved = Tensor::from_array(array).unwrap();
    assert_eq!(moved.data_ptr().unwrap() as *const i64, memory);
    assert_eq!(moved.array_view::<i64>().unwrap().view().as_ptr(), memory);
    // Column-major, and a part of a larger array.
    let transposed = Tensor::from_array(arr2(&[[1.0f64, 2.0], [3.0, 4.0]]).reversed_axes()).unwrap();
    assert_eq!(transposed.to_vec::<f64>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    let part = arr2(&[[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]]).slice_move(s![.., 1..]);
    assert_eq!(Tensor::from_array(part).unwrap().sum().unwrap().item().unwrap(), 16.0);
    assert_eq!(Tensor::from_array(Array::<f32, Ix2>::zeros((0, 3))).unwrap().shape().unwrap(), [0, 3]);
}

#[test]
fn views_follow_the_strides_of_the_tensor() {
    let mut tensor = Tensor::from_vec((0..6).map(|i| i as f32).collect(), &[2, 3]).unwrap();
    assert_eq!(tensor.t().unwrap().array_view::<f32>().unwrap().view()[[2, 1]], 5.0);
    tensor.array_view_mut::<f32>().unwrap().view_mut().index_axis_mut(Axis(1), 0).fill(7.0);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [7.0, 1.0, 2.0, 7.0, 4.0, 5.0]);
    assert_eq!(tensor.select(0, 1).unwrap().array_view::<f32>().unwrap().view().sum(), 16.0);
    assert_eq!(Tensor::scalar(3.0f32).unwrap().array_view::<f32>().unwrap().view().ndim(), 0);
}

#[test]
fn what_cannot_be_viewed_is_refused() {
    let mut backwards = arr2(&[[1.0f32, 2.0]]);
    backwards.invert_axis(Axis(1));
    assert_eq!(Tensor::from_array(backwards).unwrap_err().code(), ErrorCode::Unsupported);
    let row = Tensor::from_slice(&[1.0f32, 2.0], &[1, 2]).unwrap();
    let mut expanded = row.expand(&[3, 2]).unwrap();
    assert_eq!(expanded.array_view::<f32>().unwrap().view().sum(), 9.0);
    assert_eq!(expanded.array_view_mut::<f32>().err().unwrap().code(), ErrorCode::InvalidState);
    assert_eq!(row.array_view::<f64>().err().unwrap().code(), ErrorCode::TypeMismatch);
}
