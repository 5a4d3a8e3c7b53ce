// SPDX-License-Identifier: Apache-2.0
//! Any operator of LibTorch by its name. The frequent ones are methods of [`Tensor`](crate::Tensor).
use crate::call::made;
use crate::error::{check, text, Error, ErrorCode, Result};
use crate::handle::array;
use crate::memory;
use crate::strings::c_string;
use crate::tensor::Tensor;
use crate::value::{Arg, Value};
use accel_sys as sys;
use std::fmt;
use std::ptr::{self, NonNull};

/// An operator of LibTorch. Finding one costs more than calling it.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{Op, Tensor};
/// let roll = Op::find("aten::roll", "")?;
/// let tensor = Tensor::from_slice(&[1i64, 2, 3], &[3])?;
/// let mut rolled = roll.call1(&[(&tensor).into(), 1.into(), 0.into()])?.into_tensor()?;
/// assert_eq!(rolled.to_vec::<i64>()?, [3, 1, 2]);
/// // One that changes a tensor needs it for itself.
/// Op::find("aten::index_fill_", "int_Scalar")?
///     .call_in_place(&mut rolled, &[0.into(), (&Tensor::from_slice(&[1i64], &[1])?).into(), 9.into()])?;
/// assert_eq!(rolled.to_vec::<i64>()?, [3, 9, 2]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Op {
    raw: RawOp,
    changes: Changes,
}

/// Which of its arguments an operator changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    Nothing,
    First,
    Others,
}

impl Changes {
    /// Schemas mark them: "aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)".
    fn of(schema: &str) -> Self {
        let arguments = schema.rsplit_once(" -> ").map_or(schema, |(arguments, _)| arguments);
        let first = arguments.split(',').next().unwrap_or(arguments);
        match (arguments.matches('!').count(), first.matches('!').count()) {
            (0, _) => Changes::Nothing,
            (1, 1) => Changes::First,
            _ => Changes::Others,
        }
    }
}

impl Op {
    /// Finds "aten::add" with its overload "Tensor"; "" is the plain one.
    pub fn find(name: &str, overload: &str) -> Result<Self> {
        let raw = RawOp::find(name, overload)?;
        Ok(Op { raw, changes: Changes::of(&raw.schema()) })
    }

    /// Calls it with arguments in the schema's order; missing ones at the end take their defaults.
    ///
    /// # Errors
    /// InvalidArgument for an operator that changes an argument: [`Op::call_in_place`].
    pub fn call(self, arguments: &[Arg<'_>]) -> Result<Vec<Value>> {
        self.call_with(arguments, &[])
    }

    /// Calls an operator with one result.
    #[inline]
    pub fn call1(self, arguments: &[Arg<'_>]) -> Result<Value> {
        self.require(Changes::Nothing)?;
        self.raw.call1(arguments)
    }

    /// Calls it with further arguments by name.
    pub fn call_with(self, arguments: &[Arg<'_>], named: &[(&str, Arg<'_>)]) -> Result<Vec<Value>> {
        self.require(Changes::Nothing)?;
        self.raw.call_with(arguments, named)
    }

    /// Calls an operator that changes its first argument, with the further ones.
    ///
    /// # Errors
    /// InvalidArgument for an operator that changes nothing, or another argument.
    pub fn call_in_place(self, first: &mut Tensor, further: &[Arg<'_>]) -> Result<()> {
        self.require(Changes::First)?;
        memory::writes(first)?;
        let mut arguments = Vec::with_capacity(1 + further.len());
        arguments.push(Arg::from(&*first));
        arguments.extend_from_slice(further);
        self.raw.call_with(&arguments, &[]).map(drop)
    }

    #[inline]
    fn require(self, expected: Changes) -> Result<()> {
        if self.changes == expected {
            return Ok(());
        }
        let changed = match self.changes {
            Changes::Nothing => "changes nothing: call() is for it",
            Changes::First => "changes its first argument: call_in_place() is for it",
            Changes::Others => "changes other arguments than its first one, which cannot be done from here",
        };
        Err(Error::new(ErrorCode::InvalidArgument, format!("{} {changed}", self.schema())))
    }

    /// "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".
    pub fn schema(self) -> String {
        self.raw.schema()
    }

    /// The names of all operators that begin so, sorted.
    pub fn list(prefix: &str) -> Result<Vec<String>> {
        let prefix = c_string(prefix)?;
        let names: Value = made(|out| unsafe { sys::accel_op_list(prefix.as_ptr(), out) })?;
        Ok(names.iter().filter_map(|name| Some(name.as_str()?.to_string())).collect())
    }
}

/// An operator whose caller knows what it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawOp(NonNull<sys::accel_op_t>);

// SAFETY: operators are interned, and all their functions are of the kind `any`.
unsafe impl Send for RawOp {}
// SAFETY: as above.
unsafe impl Sync for RawOp {}

/// More results than any operator of LibTorch has.
const MOST_RESULTS: usize = 16;

impl RawOp {
    pub(crate) fn find(name: &str, overload: &str) -> Result<Self> {
        let (name, overload) = (c_string(name)?, c_string(overload)?);
        let mut op = ptr::null();
        check(unsafe { sys::accel_op_find(name.as_ptr(), overload.as_ptr(), &mut op) })?;
        Ok(RawOp(NonNull::new(op as *mut _).expect("an operator that was found")))
    }

    pub(crate) fn as_raw(self) -> *const sys::accel_op_t {
        self.0.as_ptr()
    }

    /// # Safety
    /// NULL, or an operator that was found.
    pub(crate) unsafe fn from_raw(raw: *mut sys::accel_op_t) -> Option<Self> {
        NonNull::new(raw).map(RawOp)
    }

    #[inline]
    pub(crate) fn call1(self, arguments: &[Arg<'_>]) -> Result<Value> {
        memory::reads(arguments)?;
        let (mut result, mut count) = (Value::none(), 0);
        let (first, length) = array(arguments);
        let place = &mut result as *mut Value;
        check(unsafe { sys::accel_op_call(self.as_raw(), first.cast(), length, place.cast(), 1, &mut count) })?;
        Ok(result)
    }

    pub(crate) fn call_with(self, arguments: &[Arg<'_>], named: &[(&str, Arg<'_>)]) -> Result<Vec<Value>> {
        memory::reads(arguments)?;
        named.iter().try_for_each(|(_, argument)| memory::reads(argument))?;
        let names = named.iter().map(|(name, _)| c_string(name)).collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let given: Vec<_> = named.iter().map(|(_, argument)| *argument).collect();
        let mut results: Vec<Value> = (0..MOST_RESULTS).map(|_| Value::none()).collect();
        let mut count = 0;
        let ((first, length), (names, _), (given, n_named)) = (array(arguments), array(&names), array(&given));
        // SAFETY: the arguments and the names live through the call, and there is place for so many results.
        check(unsafe {
            let place = results.as_mut_ptr().cast();
            let (first, given) = (first.cast(), given.cast());
            sys::accel_op_call_kw(self.as_raw(), first, length, names, given, n_named, place, MOST_RESULTS, &mut count)
        })?;
        results.truncate(count);
        Ok(results)
    }

    fn schema(self) -> String {
        unsafe { text(sys::accel_op_schema(self.as_raw())) }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.schema())
    }
}
