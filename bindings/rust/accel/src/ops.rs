// SPDX-License-Identifier: Apache-2.0
//! Operators of LibTorch with types, generated from their schemas. Most of them are methods of [`Tensor`]; here are those
//! whose first argument is not a tensor.
use crate::call::made;
use crate::error::Result;
use crate::op::RawOp;
use crate::tensor::Tensor;
use crate::value::{Arg, Value};
use accel_sys as sys;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

#[rustfmt::skip]
mod generated;
pub use generated::*;

/// A number for an operator: integers stay integers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// An integer.
    Int(i64),
    /// A number.
    Double(f64),
}

macro_rules! scalars {
    ($($variant:ident: $($kind:ty)*;)*) => {$($(
        impl From<$kind> for Scalar {
            #[inline]
            fn from(number: $kind) -> Self {
                Scalar::$variant(number as _)
            }
        }
    )*)*};
}

scalars! {
    Int: i64 i32 i16 i8 u32 u16 u8 usize;
    Double: f64 f32;
}

impl From<Scalar> for Arg<'_> {
    #[inline]
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Int(number) => number.into(),
            Scalar::Double(number) => number.into(),
        }
    }
}

/// An operator that is found when it is called first.
struct KnownOp {
    name: &'static str,
    overload: &'static str,
    found: AtomicPtr<sys::accel_op_t>,
}

impl KnownOp {
    const fn new(name: &'static str, overload: &'static str) -> Self {
        KnownOp { name, overload, found: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> Result<RawOp> {
        // SAFETY: it is NULL or was found. Operators are interned: whoever finds it first writes the same.
        match unsafe { RawOp::from_raw(self.found.load(Ordering::Relaxed)) } {
            Some(op) => Ok(op),
            None => self.find(),
        }
    }

    #[cold]
    fn find(&self) -> Result<RawOp> {
        let op = RawOp::find(self.name, self.overload)?;
        self.found.store(op.as_raw() as *mut _, Ordering::Relaxed);
        Ok(op)
    }
}

fn tensor_list(tensors: &[&Tensor]) -> Result<Value> {
    let arguments: Vec<Arg<'_>> = tensors.iter().map(|tensor| Arg::from(*tensor)).collect();
    let (first, length) = crate::handle::array(&arguments);
    made(|out| unsafe { sys::accel_value_list(first.cast(), length, out) })
}

fn tensors_of(value: Value) -> Result<Vec<Tensor>> {
    value.iter().map(|item| item.try_clone()?.into_tensor()).collect()
}

fn truth_of(value: Value) -> bool {
    value.as_bool() == Some(true)
}

fn tensors_in<const N: usize>(results: Vec<Value>) -> Result<[Tensor; N]> {
    let tensors = results.into_iter().map(Value::into_tensor).collect::<Result<Vec<_>>>()?;
    tensors.try_into().map_err(|tensors: Vec<Tensor>| {
        let message = format!("{} results: expected {N}", tensors.len());
        crate::error::Error::new(crate::error::ErrorCode::Internal, message)
    })
}
