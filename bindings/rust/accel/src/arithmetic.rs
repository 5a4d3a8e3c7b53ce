//! `+ - * /` between tensors, and between tensors and numbers.
use crate::error::Result;
use crate::tensor::Tensor;
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! arithmetic {
    ($($trait:ident::$method:ident = $tensors:path, $number:path;)*) => {$(
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: &Tensor) -> Self::Output {
                $tensors(self, other)
            }
        }

        impl $trait<f64> for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: f64) -> Self::Output {
                $number(self, number)
            }
        }

        impl $trait<&Tensor> for Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: &Tensor) -> Self::Output {
                $tensors(&self, other)
            }
        }

        impl $trait<f64> for Tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: f64) -> Self::Output {
                $number(&self, number)
            }
        }
    )*};
}

arithmetic! {
    Add::add = Tensor::add, Tensor::add_scalar;
    Sub::sub = Tensor::sub, Tensor::sub_scalar;
    Mul::mul = Tensor::mul, Tensor::mul_scalar;
    Div::div = Tensor::div, Tensor::div_scalar;
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Self::Output {
        Tensor::neg(self)
    }
}
