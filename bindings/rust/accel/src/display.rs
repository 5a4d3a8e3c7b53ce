// SPDX-License-Identifier: Apache-2.0
//! Tensors as text, with their numbers.
use crate::dtype::{DType, Device};
use crate::error::Result;
use crate::ops;
use crate::tensor::Tensor;
use std::fmt;

/// More elements are elided, to so many at each end of a dimension.
const MOST_SHOWN: i64 = 1000;
const AT_EACH_END: i64 = 3;
const WIDTH: usize = 80;

/// The numbers, as LibTorch's Python shows them: `{:.2}` says how many digits, and of more than 1000 elements only the ends are shown.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// let x = accel::Tensor::from_slice(&[1.0f32, 2.5, -3.0, 4.0], &[2, 2])?;
/// assert_eq!(x.to_string(), "[[ 1.0000,  2.5000],\n [-3.0000,  4.0000]]");
/// assert_eq!(format!("{x:.1}"), "[[ 1.0,  2.5],\n [-3.0,  4.0]]");
/// # Ok(()) }
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.device() == Device::Meta || self.dtype() == DType::Other {
            return fmt::Debug::fmt(self, formatter);
        }
        match numbers(self, formatter.precision()) {
            Ok(shown) => formatter.write_str(&shown),
            // It may be on a device that has failed, or of a dtype that has no numbers.
            Err(_) => fmt::Debug::fmt(self, formatter),
        }
    }
}

fn numbers(tensor: &Tensor, precision: Option<usize>) -> Result<String> {
    let is_elided = tensor.numel() > MOST_SHOWN;
    let mut shown = tensor.detach()?;
    for dim in (0..tensor.ndim()).filter(|_| is_elided) {
        shown = ends(&shown, dim)?;
    }
    let words = match tensor.dtype() {
        DType::Bool => {
            shown.to_dtype(DType::UInt8)?.to_vec::<u8>()?.iter().map(|truth| (*truth != 0).to_string()).collect()
        }
        DType::UInt8 | DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 | DType::UInt16 | DType::UInt32 => {
            shown.to_dtype(DType::Int64)?.to_vec::<i64>()?.iter().map(i64::to_string).collect()
        }
        DType::UInt64 => shown.to_vec::<u64>()?.iter().map(u64::to_string).collect(),
        _ => floats(&shown.to_dtype(DType::Float64)?.to_vec::<f64>()?, precision),
    };
    let words: Vec<String> = words;
    let width = words.iter().map(String::len).max().unwrap_or(0);
    let padded = words.iter().map(|word| format!("{word:>width$}")).collect::<Vec<_>>();
    let mut shown = Shown { text: String::new(), words: padded.iter(), width, is_elided };
    shown.write(&tensor.shape(), 1);
    Ok(shown.text)
}

/// The first and the last of a dimension.
fn ends(tensor: &Tensor, dim: usize) -> Result<Tensor> {
    let (size, dim) = (tensor.shape()[dim], dim as i64);
    if size <= 2 * AT_EACH_END {
        return Ok(tensor.shallow_clone());
    }
    let (first, last) = (tensor.narrow(dim, 0, AT_EACH_END)?, tensor.narrow(dim, size - AT_EACH_END, AT_EACH_END)?);
    ops::cat(&[&first, &last], dim)
}

/// All with the same digits, or as powers of ten where they lie far apart.
fn floats(numbers: &[f64], precision: Option<usize>) -> Vec<String> {
    let sizes = || numbers.iter().map(|number| number.abs()).filter(|size| size.is_finite() && *size > 0.0);
    let (most, least) = (sizes().fold(0.0, f64::max), sizes().fold(f64::MAX, f64::min));
    let are_whole = numbers.iter().all(|number| !number.is_finite() || number.fract() == 0.0);
    let is_far = most > 1e8 || !are_whole && (most / least > 1000.0 || least < 1e-4);
    let digits = precision.unwrap_or(4);
    let word = |number: &f64| match number {
        number if number.is_nan() => "nan".into(),
        number if number.is_infinite() => if *number > 0.0 { "inf" } else { "-inf" }.into(),
        number if is_far && most > 0.0 => format!("{number:.digits$e}"),
        number if are_whole && precision.is_none() => format!("{number:.0}."),
        number => format!("{number:.digits$}"),
    };
    numbers.iter().map(word).collect()
}

struct Shown<'a> {
    text: String,
    words: std::slice::Iter<'a, String>,
    width: usize,
    is_elided: bool,
}

impl Shown<'_> {
    fn write(&mut self, shape: &[i64], depth: usize) {
        let (size, rest) = match shape {
            [] => return self.text.extend(self.words.next().map(String::as_str)),
            [size, rest @ ..] => (*size, rest),
        };
        let is_cut = self.is_elided && size > 2 * AT_EACH_END;
        let mut column = depth;
        self.text.push('[');
        for place in 0..if is_cut { 2 * AT_EACH_END } else { size } {
            if place > 0 {
                column = self.next(rest, depth, column);
            }
            if is_cut && place == AT_EACH_END {
                self.text.push_str("...");
                column = self.next(rest, depth, column + 3);
            }
            self.write(rest, depth + 1);
            column += self.width;
        }
        self.text.push(']');
    }

    /// The separator of two items: a blank, or a line where there is no room, or where the items are lines.
    fn next(&mut self, rest: &[i64], depth: usize, column: usize) -> usize {
        let has_room = rest.is_empty() && column + 2 + self.width < WIDTH;
        self.text.push(',');
        if has_room {
            self.text.push(' ');
            return column + 2;
        }
        self.text.push_str(&"\n".repeat(rest.len().max(1)));
        self.text.push_str(&" ".repeat(depth));
        depth
    }
}
