//! `+ - * /` of tensors, results and numbers.
//!
//! Each side is a tensor, a borrowed one, or what another operator gave; or one side is a number: an `f64`, an `i64`, or a
//! [`Scalar`], which is made of the other types. (With operators for all of them, the type of `2.0` could not be told.) What the
//! language does not let a crate define, because nothing in it is of this crate, is a result with a result or with a number, and `-`
//! of a result: `?` makes a tensor of one.
use crate::error::{Error, Result};
use crate::ops::Scalar;
use crate::tensor::Tensor;
use std::borrow::Borrow;
use std::ops::{Add, Div, Mul, Neg, Sub};

fn number_sub(number: Scalar, tensor: &Tensor) -> Result<Tensor> {
    tensor.rsub_scalar(number)
}

fn number_div(number: Scalar, tensor: &Tensor) -> Result<Tensor> {
    tensor.reciprocal()?.mul_scalar(number)
}

fn number_add(number: Scalar, tensor: &Tensor) -> Result<Tensor> {
    tensor.add_scalar(number)
}

fn number_mul(number: Scalar, tensor: &Tensor) -> Result<Tensor> {
    tensor.mul_scalar(number)
}

macro_rules! binary {
    ($($trait:ident::$method:ident = $tensors:path, $right:path, $left:path;)*) => {$(
        binary!(tensor Tensor, $trait, $method, $tensors);
        binary!(tensor &Tensor, $trait, $method, $tensors);
        binary!(numbers $trait, $method, $right, $left: f64 i64 Scalar);
    )*};
    (tensor $left:ty, $trait:ident, $method:ident, $tensors:path) => {
        impl<T: Borrow<Tensor>> $trait<T> for $left {
            type Output = Result<Tensor>;

            fn $method(self, other: T) -> Self::Output {
                $tensors(self.borrow(), other.borrow())
            }
        }

        impl<T: Borrow<Tensor>> $trait<std::result::Result<T, Error>> for $left {
            type Output = Result<Tensor>;

            fn $method(self, other: std::result::Result<T, Error>) -> Self::Output {
                $tensors(self.borrow(), other?.borrow())
            }
        }

        impl $trait<$left> for Result<Tensor> {
            type Output = Result<Tensor>;

            fn $method(self, other: $left) -> Self::Output {
                $tensors(&self?, other.borrow())
            }
        }
    };
    (numbers $trait:ident, $method:ident, $right:path, $left:path: $($number:ty)*) => {$(
        impl $trait<$number> for Tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: $number) -> Self::Output {
                $right(&self, number)
            }
        }

        impl $trait<$number> for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: $number) -> Self::Output {
                $right(self, number)
            }
        }

        impl $trait<Tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, tensor: Tensor) -> Self::Output {
                $left(self.into(), &tensor)
            }
        }

        impl $trait<&Tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, tensor: &Tensor) -> Self::Output {
                $left(self.into(), tensor)
            }
        }
    )*};
}

binary! {
    Add::add = Tensor::add, Tensor::add_scalar, number_add;
    Sub::sub = Tensor::sub, Tensor::sub_scalar, number_sub;
    Mul::mul = Tensor::mul, Tensor::mul_scalar, number_mul;
    Div::div = Tensor::div, Tensor::div_scalar, number_div;
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Self::Output {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Self::Output {
        Tensor::neg(&self)
    }
}
