// SPDX-License-Identifier: Apache-2.0
//! Parts of tensors: `tensor.i((0, 1..3, ..))`.
use crate::dtype::DType;
use crate::error::{Error, ErrorCode, Result};
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A tensor is indexed by a tuple with an index for each of its first dimensions, or by one index alone.
///
/// A number takes one place and drops the dimension, a range keeps it, and `..` takes all of it; numbers below 0 count from the end.
/// [`NewAxis`] adds a dimension, and [`Ellipsis`] stands for all that are not named: these share the memory of the tensor. A list or a
/// tensor of integers takes these places, and a tensor of truths with one dimension those where it is true: these are copies.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::prelude::*;
/// let x = ops::arange(0, 24, None)?.reshape(&[2, 3, 4])?;
/// assert_eq!(x.i((0, 1..3, ..))?.shape(), [2, 4]);
/// assert_eq!(x.i((1, -1, 2))?.item_int()?, 22);
/// assert_eq!(x.i((Ellipsis, 0))?.shape(), [2, 3]);
/// assert_eq!(x.i((.., NewAxis, ..=1))?.shape(), [2, 1, 2, 4]);
/// assert_eq!(x.i(1)?.shape(), [3, 4]);
/// let chosen = Tensor::from_slice(&[2i64, 0], &[2])?;
/// assert_eq!(x.i((0, &chosen, 0))?.to_vec::<i64>()?, [8, 0]);
/// assert_eq!(x.i((0, [2, -3], 0))?.to_vec::<i64>()?, [8, 0]);
/// let column = x.i((0, .., 0))?;
/// assert_eq!(column.i(&column.gt_scalar(3)?)?.to_vec::<i64>()?, [4, 8]);
/// assert!(x.i((0, 3)).is_err());
/// # Ok(()) }
/// ```
pub trait IndexOp<Index> {
    /// The part that an index takes.
    ///
    /// # Errors
    /// InvalidArgument for a place that is not there, and for more indices than dimensions.
    fn i(&self, index: Index) -> Result<Tensor>;
}

/// Adds a dimension of size 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewAxis;

/// All dimensions that are not named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ellipsis;

/// The part that is taken of a dimension.
#[derive(Debug)]
#[non_exhaustive]
pub enum TensorIndex<'a> {
    /// One place.
    Place(i64),
    /// From one place to before another; None is the end.
    Range(i64, Option<i64>),
    /// These places.
    Places(&'a Tensor),
    /// These places, too.
    List(Cow<'a, [i64]>),
    /// No dimension of the tensor: a new one.
    NewAxis,
    /// All dimensions that are not named.
    Ellipsis,
}

macro_rules! places {
    ($($kind:ty),*) => {$(
        impl From<$kind> for TensorIndex<'_> {
            fn from(place: $kind) -> Self {
                TensorIndex::Place(place as i64)
            }
        }
    )*};
}

places!(i64, i32, u32, usize);

macro_rules! ranges {
    ($($range:ident<$($kind:ty),*>;)*) => {$($(
        impl From<$range<$kind>> for TensorIndex<'_> {
            fn from(range: $range<$kind>) -> Self {
                let start = match range.start_bound() {
                    Bound::Included(start) => *start as i64,
                    Bound::Excluded(_) | Bound::Unbounded => 0,
                };
                let end = match range.end_bound() {
                    Bound::Excluded(end) => Some(*end as i64),
                    // `..=-1` goes to the last place.
                    Bound::Included(end) => Some(*end as i64 + 1).filter(|end| *end != 0),
                    Bound::Unbounded => None,
                };
                TensorIndex::Range(start, end)
            }
        }
    )*)*};
}

ranges! {
    Range<i64, i32, u32, usize>;
    RangeFrom<i64, i32, u32, usize>;
    RangeInclusive<i64, i32, u32, usize>;
    RangeTo<i64, i32, u32, usize>;
    RangeToInclusive<i64, i32, u32, usize>;
}

impl From<RangeFull> for TensorIndex<'_> {
    fn from(_: RangeFull) -> Self {
        TensorIndex::Range(0, None)
    }
}

impl From<NewAxis> for TensorIndex<'_> {
    fn from(_: NewAxis) -> Self {
        TensorIndex::NewAxis
    }
}

impl From<Ellipsis> for TensorIndex<'_> {
    fn from(_: Ellipsis) -> Self {
        TensorIndex::Ellipsis
    }
}

impl<'a> From<&'a Tensor> for TensorIndex<'a> {
    fn from(places: &'a Tensor) -> Self {
        TensorIndex::Places(places)
    }
}

impl<'a> From<&'a [i64]> for TensorIndex<'a> {
    fn from(places: &'a [i64]) -> Self {
        TensorIndex::List(places.into())
    }
}

impl<'a> From<&'a Vec<i64>> for TensorIndex<'a> {
    fn from(places: &'a Vec<i64>) -> Self {
        TensorIndex::List(places.into())
    }
}

impl<const N: usize> From<[i64; N]> for TensorIndex<'_> {
    fn from(places: [i64; N]) -> Self {
        TensorIndex::List(places.to_vec().into())
    }
}

impl<'a, Index: Into<TensorIndex<'a>>> IndexOp<Index> for Tensor {
    fn i(&self, index: Index) -> Result<Tensor> {
        take(self, &[index.into()])
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<'a, $($name: Into<TensorIndex<'a>>),*> IndexOp<($($name,)*)> for Tensor {
            fn i(&self, index: ($($name,)*)) -> Result<Tensor> {
                #[allow(non_snake_case)]
                let ($($name,)*) = index;
                take(self, &[$($name.into()),*])
            }
        }
    )*};
}

tuples! {
    A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H;
}

fn take(tensor: &Tensor, indices: &[TensorIndex<'_>]) -> Result<Tensor> {
    let named = indices.iter().filter(|index| !matches!(index, TensorIndex::NewAxis | TensorIndex::Ellipsis)).count();
    let ndim = tensor.ndim();
    if named > ndim || indices.iter().filter(|index| matches!(index, TensorIndex::Ellipsis)).count() > 1 {
        let message =
            format!("{named} indices for a tensor of {ndim} dimensions: expected at most one each, and one ellipsis");
        return Err(Error::new(ErrorCode::InvalidArgument, message));
    }
    let (mut taken, mut dim) = (tensor.shallow_clone(), 0usize);
    for index in indices {
        let at = dim as i64;
        match index {
            TensorIndex::Place(place) => taken = taken.select(at, inside(*place, size(&taken, dim), false)?)?,
            TensorIndex::Range(start, end) => {
                let size = size(&taken, dim);
                let start = inside(*start, size, true)?;
                let end = end.map_or(Ok(size), |end| inside(end, size, true))?;
                taken = taken.narrow(at, start, (end - start).max(0))?;
                dim += 1;
            }
            TensorIndex::Places(places) if places.dtype() == DType::Bool => {
                fits(places, size(&taken, dim))?;
                taken = taken.index_select(at, &places.nonzero()?.select(1, 0)?.to_device(taken.device())?)?;
                dim += 1;
            }
            TensorIndex::Places(places) => {
                taken = taken.index_select(at, places)?;
                dim += 1;
            }
            TensorIndex::List(places) => {
                let size = size(&taken, dim);
                let places = places.iter().map(|place| inside(*place, size, false)).collect::<Result<Vec<_>>>()?;
                let shape = [places.len() as i64];
                taken = taken.index_select(at, &Tensor::from_vec(places, &shape)?.to_device(taken.device())?)?;
                dim += 1;
            }
            TensorIndex::NewAxis => {
                taken = taken.unsqueeze(at)?;
                dim += 1;
            }
            TensorIndex::Ellipsis => dim += ndim - named,
        }
    }
    Ok(taken)
}

fn size(tensor: &Tensor, dim: usize) -> i64 {
    tensor.shape()[dim]
}

fn fits(mask: &Tensor, size: i64) -> Result<()> {
    if mask.shape() == [size] {
        return Ok(());
    }
    let message = format!(
        "a mask of shape {:?} for a dimension of size {size}: expected one truth for each place; masked_select() takes one of the \
         tensor's shape",
        mask.shape()
    );
    Err(Error::new(ErrorCode::ShapeMismatch, message))
}

fn inside(place: i64, size: i64, is_bound: bool) -> Result<i64> {
    let counted = if place < 0 { place + size } else { place };
    if (0..size + i64::from(is_bound)).contains(&counted) {
        return Ok(counted);
    }
    Err(Error::new(
        ErrorCode::InvalidArgument,
        format!("index {place} of a dimension of size {size}: expected one inside"),
    ))
}
