// SPDX-License-Identifier: Apache-2.0
//! `+ - * /` of tensors, results and numbers.
//!
//! Each side is a tensor, a borrowed one, or what another operator gave; or one side is a number: on the right of any type that
//! [`Scalar`] is made of, on the left an `f64`, an `i64` or a [`Scalar`]. (With more of them the type of `2.0` could not be
//! inferred.) The language does not let a crate define operators of foreign types: a result with a result, a result with a
//! plain number, and `-` of a result: `?` makes a tensor of one.
use crate::error::Result;
use crate::ops::Scalar;
use crate::tensor::Tensor;
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
        binary!($trait, $method, |left: Tensor, right: Tensor| $tensors(&left, &right));
        binary!($trait, $method, |left: Tensor, right: &Tensor| $tensors(&left, right));
        binary!($trait, $method, |left: &Tensor, right: Tensor| $tensors(left, &right));
        binary!($trait, $method, |left: &Tensor, right: &Tensor| $tensors(left, right));
        binary!($trait, $method, |left: Tensor, right: Result<Tensor>| $tensors(&left, &right?));
        binary!($trait, $method, |left: &Tensor, right: Result<Tensor>| $tensors(left, &right?));
        binary!($trait, $method, |left: Result<Tensor>, right: Tensor| $tensors(&left?, &right));
        binary!($trait, $method, |left: Result<Tensor>, right: &Tensor| $tensors(&left?, right));
        binary!($trait, $method, |left: Result<Tensor>, right: Scalar| $right(&left?, right));
        binary!($trait, $method, |left: Scalar, right: Result<Tensor>| $left(left, &right?));
        binary!(numbers $trait, $method, $left: f64 i64 Scalar);

        impl<Number: Into<Scalar>> $trait<Number> for Tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: Number) -> Self::Output {
                $right(&self, number)
            }
        }

        impl<Number: Into<Scalar>> $trait<Number> for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: Number) -> Self::Output {
                $right(self, number)
            }
        }
    )*};
    ($trait:ident, $method:ident, |$left:ident: $left_kind:ty, $right:ident: $right_kind:ty| $value:expr) => {
        impl $trait<$right_kind> for $left_kind {
            type Output = Result<Tensor>;

            fn $method(self, $right: $right_kind) -> Self::Output {
                let $left = self;
                $value
            }
        }
    };
    (numbers $trait:ident, $method:ident, $left:path: $($number:ty)*) => {$(
        binary!($trait, $method, |number: $number, tensor: Tensor| $left(number.into(), &tensor));
        binary!($trait, $method, |number: $number, tensor: &Tensor| $left(number.into(), tensor));
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
