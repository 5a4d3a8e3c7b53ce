// SPDX-License-Identifier: Apache-2.0
//! Nested values: what batches, state dicts, arguments and results are made of.
use crate::call::{made, Made};
use crate::dtype::{DType, Device};
use crate::error::{check, text, Error, ErrorCode, Result};
use crate::handle::array;
use crate::memory::{self, Memory};
use crate::strings::c_string;
use crate::tensor::Tensor;
use accel_sys as sys;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Range;
use std::{fmt, mem};

/// A number, a text, bytes, a tensor, a list, a tuple, or a map whose keys keep their order.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::Value;
/// let value = Value::map([("step", Value::from(3)), ("rates", Value::list([0.5, 0.25])?)])?;
/// assert_eq!(value.get("step").and_then(Value::as_int), Some(3));
/// assert_eq!(value.to_json()?, r#"{"step":3,"rates":[0.5,0.25]}"#);
/// # Ok(()) }
/// ```
#[repr(transparent)]
pub struct Value(sys::accel_value_t);

// SAFETY: what a shared value is asked for is of the kind `any`, and any thread may own it.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

macro_rules! kinds {
    ($($name:ident = $number:ident),* $(,)?) => {
        /// The kind of a value.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum Kind {
            None,
            $($name,)*
        }

        impl Value {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self.0.kind {
                    $(sys::$number => Kind::$name,)*
                    _ => Kind::None,
                }
            }
        }
    };
}

kinds! {
    Bool = ACCEL_VALUE_BOOL, Int = ACCEL_VALUE_INT, Double = ACCEL_VALUE_DOUBLE, String = ACCEL_VALUE_STRING,
    Tensor = ACCEL_VALUE_TENSOR, List = ACCEL_VALUE_LIST, Map = ACCEL_VALUE_MAP, DType = ACCEL_VALUE_DTYPE,
    Device = ACCEL_VALUE_DEVICE, Tuple = ACCEL_VALUE_TUPLE, Bytes = ACCEL_VALUE_BYTES,
}

impl Drop for Value {
    #[inline]
    fn drop(&mut self) {
        // Only these own something.
        if matches!(
            self.0.kind,
            sys::ACCEL_VALUE_STRING..=sys::ACCEL_VALUE_MAP | sys::ACCEL_VALUE_TUPLE | sys::ACCEL_VALUE_BYTES
        ) {
            unsafe { sys::accel_value_dispose(&mut self.0) }
        }
    }
}

/// Values that are made.
impl Value {
    /// Nothing.
    pub const fn none() -> Self {
        Value(sys::accel_value_t::none())
    }

    /// A text.
    ///
    /// # Errors
    /// InvalidArgument for a text with a NUL inside.
    pub fn string(string: impl AsRef<str>) -> Result<Self> {
        let string = c_string(string)?;
        made(|out| unsafe { sys::accel_value_string(string.as_ptr(), out) })
    }

    /// A list.
    pub fn list<Item: Into<Value>>(items: impl IntoIterator<Item = Item>) -> Result<Self> {
        let items: Vec<Value> = items.into_iter().map(Into::into).collect();
        Self::list_of(&items)
    }

    fn list_of(items: &[Value]) -> Result<Self> {
        let (first, length) = array(items);
        made(|out| unsafe { sys::accel_value_list(first.cast(), length, out) })
    }

    /// A tuple: a list that other languages tell from one.
    pub fn tuple<Item: Into<Value>>(items: impl IntoIterator<Item = Item>) -> Result<Self> {
        let items: Vec<Value> = items.into_iter().map(Into::into).collect();
        let (first, length) = array(&items);
        made(|out| unsafe { sys::accel_value_tuple(first.cast(), length, out) })
    }

    /// Bytes. The type says who can read them, "python/pickle" for example.
    ///
    /// # Errors
    /// InvalidArgument for a type with a NUL inside.
    pub fn bytes(bytes: &[u8], kind: Option<&str>) -> Result<Self> {
        let kind = kind.map(c_string).transpose()?;
        let kind = kind.as_ref().map_or(std::ptr::null(), |kind| kind.as_ptr());
        made(|out| unsafe { sys::accel_value_bytes(bytes.as_ptr().cast(), bytes.len(), kind, out) })
    }

    /// A map.
    pub fn map<Key: AsRef<str>>(items: impl IntoIterator<Item = (Key, Value)>) -> Result<Self> {
        let mut map: Value = made(|out| unsafe { sys::accel_value_map(out) })?;
        for (key, item) in items {
            map.set(key, &item)?;
        }
        Ok(map)
    }

    /// The value of a JSON document.
    pub fn from_json(json: &str) -> Result<Self> {
        let json = c_string(json)?;
        made(|out| unsafe { sys::accel_value_from_json(json.as_ptr(), out) })
    }

    /// A copy of the containers; tensors are shared.
    pub fn try_clone(&self) -> Result<Self> {
        made(|out| unsafe { sys::accel_value_copy(&self.0, out) })
    }

    /// Gives up what it owns.
    pub(crate) fn into_raw(self) -> sys::accel_value_t {
        let raw = self.0;
        mem::forget(self);
        raw
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *const sys::accel_value_t {
        &self.0
    }

    pub(crate) fn as_mut_raw(&mut self) -> *mut sys::accel_value_t {
        &mut self.0
    }

    /// A value that the library owns.
    ///
    /// # Safety
    /// NULL, or a value that lives and does not change for the lifetime.
    pub(crate) unsafe fn borrowed<'a>(raw: *const sys::accel_value_t) -> Option<&'a Value> {
        raw.cast::<Value>().as_ref()
    }

    /// Values that the library owns.
    ///
    /// # Safety
    /// So many values that live and do not change for the lifetime.
    pub(crate) unsafe fn borrowed_slice<'a>(raw: *const sys::accel_value_t, length: usize) -> &'a [Value] {
        if length == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(raw.cast(), length)
        }
    }
}

/// The content of a value.
impl Value {
    /// Whether it is nothing.
    pub fn is_none(&self) -> bool {
        self.kind() == Kind::None
    }

    /// A truth.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind() {
            // SAFETY: the kind says what is set.
            Kind::Bool => Some(unsafe { self.0.r#as.integer } != 0),
            _ => None,
        }
    }

    /// An integer.
    pub fn as_int(&self) -> Option<i64> {
        match self.kind() {
            // SAFETY: the kind says what is set.
            Kind::Int => Some(unsafe { self.0.r#as.integer }),
            _ => None,
        }
    }

    /// A number; integers too.
    pub fn as_f64(&self) -> Option<f64> {
        match self.kind() {
            // SAFETY: the kind says what is set.
            Kind::Double => Some(unsafe { self.0.r#as.number }),
            // SAFETY: as above.
            Kind::Int => Some(unsafe { self.0.r#as.integer } as f64),
            _ => None,
        }
    }

    /// A text. (The library's own texts are UTF-8.)
    pub fn as_str(&self) -> Option<&str> {
        if self.kind() != Kind::String {
            return None;
        }
        // SAFETY: the kind says that it is a text, which the value owns.
        unsafe { CStr::from_ptr(self.0.r#as.string) }.to_str().ok()
    }

    /// The text of a value of the kind `String`, or of `Bytes` of UTF-8: tokenizers give text that contains a NUL so.
    pub fn as_text(&self) -> Option<&str> {
        self.as_str().or_else(|| std::str::from_utf8(self.as_bytes()?).ok())
    }

    /// Bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if self.kind() != Kind::Bytes {
            return None;
        }
        // SAFETY: the kind says what is set, and the value owns the bytes.
        let bytes = unsafe { &*self.0.r#as.bytes };
        if bytes.size == 0 {
            return Some(&[]);
        }
        // SAFETY: as above.
        Some(unsafe { std::slice::from_raw_parts(bytes.data.cast(), bytes.size) })
    }

    /// Who can read the bytes; nothing for bytes as such, and for every other kind.
    pub fn bytes_type(&self) -> Option<&str> {
        if self.kind() != Kind::Bytes {
            return None;
        }
        // SAFETY: the kind says what is set, and the value owns the text.
        let kind = unsafe { (*self.0.r#as.bytes).r#type };
        if kind.is_null() {
            return None;
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(kind) }.to_str().ok()
    }

    /// A tensor.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        // SAFETY: the kind says that it is a tensor. The pointer inside of the value is all that a Tensor is, and is lent
        // no longer than the value.
        (self.kind() == Kind::Tensor).then(|| unsafe { &*(&self.0.r#as.tensor as *const *mut _ as *const Tensor) })
    }

    /// A dtype.
    pub fn as_dtype(&self) -> Option<DType> {
        if self.kind() != Kind::DType {
            return None;
        }
        // SAFETY: the kind says what is set.
        DType::from_raw(unsafe { self.0.r#as.dtype })
    }

    /// A device.
    pub fn as_device(&self) -> Option<Device> {
        // SAFETY: the kind says what is set.
        (self.kind() == Kind::Device).then(|| Device::from_raw(unsafe { self.0.r#as.device }))
    }

    /// The tensor that it is.
    ///
    /// # Errors
    /// TypeMismatch for every other kind.
    pub fn into_tensor(self) -> Result<Tensor> {
        if self.kind() != Kind::Tensor {
            let message = format!("value {self:?}: expected a tensor");
            return Err(Error::new(ErrorCode::TypeMismatch, message));
        }
        // SAFETY: the kind says that it is a tensor, whose owner the value gives up to be.
        Ok(unsafe { Tensor::from_raw(self.into_raw().r#as.tensor) })
    }

    /// The tensor at a place of a list or map, for batches.
    ///
    /// # Errors
    /// NotFound when there is nothing, TypeMismatch when it is not a tensor.
    pub fn tensor_at(&self, index: usize) -> Result<&Tensor> {
        let item = self.at(index).ok_or_else(|| {
            let message = format!("item {index} of a value with {} items: expected one that is there", self.len());
            Error::new(ErrorCode::NotFound, message)
        })?;
        item.as_tensor()
            .ok_or_else(|| Error::new(ErrorCode::TypeMismatch, format!("item {index}, {item:?}: expected a tensor")))
    }

    /// The number of items of a list, tuple or map; 0 for every other kind.
    pub fn len(&self) -> usize {
        unsafe { sys::accel_value_count(&self.0) }
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An item by its place.
    pub fn at(&self, index: usize) -> Option<&Value> {
        if index >= self.len() {
            return None;
        }
        // SAFETY: the item belongs to this value, and is lent no longer.
        let item = unsafe { Value::borrowed(sys::accel_value_at(&self.0, index)) };
        Some(item.unwrap_or_else(|| std::alloc::handle_alloc_error(std::alloc::Layout::new::<sys::accel_value_t>())))
    }

    /// The key of a map at a place, when it is text.
    pub fn key(&self, index: usize) -> Option<&str> {
        self.key_at(index)?.as_str()
    }

    /// The key of a map at a place: text or an integer.
    pub fn key_at(&self, index: usize) -> Option<&Value> {
        if self.kind() != Kind::Map || index >= self.len() {
            return None;
        }
        // SAFETY: the key belongs to this value, and is lent no longer.
        unsafe { Value::borrowed(sys::accel_value_key_at(&self.0, index)) }
    }

    /// An item of a map by a key that is text or an integer.
    pub fn find(&self, key: &Value) -> Option<&Value> {
        if self.kind() != Kind::Map || !matches!(key.kind(), Kind::String | Kind::Int) {
            return None;
        }
        // SAFETY: the item belongs to this value, and is lent no longer.
        unsafe { Value::borrowed(sys::accel_value_find(&self.0, &key.0)) }
    }

    /// Puts a copy of an item into a map, under a key that is text or an integer.
    pub fn put(&mut self, key: &Value, item: &Value) -> Result<()> {
        check(unsafe { sys::accel_value_put(&mut self.0, &key.0, &item.0) }).map(drop)
    }

    /// An item of a map.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let key = c_string(key).ok()?;
        if self.kind() != Kind::Map {
            return None;
        }
        // SAFETY: the item belongs to this value, and is lent no longer.
        unsafe { Value::borrowed(sys::accel_value_get(&self.0, key.as_ptr())) }
    }

    /// The items of a list, tuple or map.
    pub fn iter(&self) -> impl Iterator<Item = &Value> + '_ {
        (0..self.len()).filter_map(move |index| self.at(index))
    }

    /// Keys that are text, and their items, of a map.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Value)> + '_ {
        (0..self.len()).filter_map(move |index| Some((self.key(index)?, self.at(index)?)))
    }

    /// Puts a copy of an item into a map.
    pub fn set(&mut self, key: impl AsRef<str>, item: &Value) -> Result<()> {
        let key = c_string(key)?;
        check(unsafe { sys::accel_value_set(&mut self.0, key.as_ptr(), &item.0) }).map(drop)
    }

    /// Appends a copy of an item to a list.
    pub fn push(&mut self, item: &Value) -> Result<()> {
        check(unsafe { sys::accel_value_push(&mut self.0, &item.0) }).map(drop)
    }

    /// Whether structure, numbers and the elements of tensors are the same.
    pub fn equals(&self, other: &Value) -> Result<bool> {
        memory::reads(self)?;
        memory::reads(other)?;
        let mut out = 0;
        check(unsafe { sys::accel_value_equal(&self.0, &other.0, &mut out) })?;
        Ok(out == 1)
    }

    /// One line of JSON; tensors become nested lists.
    pub fn to_json(&self) -> Result<String> {
        memory::reads(self)?;
        made(|out| unsafe { sys::accel_value_to_json(&self.0, out) })
    }
}

impl Memory for Value {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        match self.kind() {
            Kind::Tensor => self.as_tensor().each(found),
            Kind::List | Kind::Tuple | Kind::Map => self.iter().for_each(|item| item.each(found)),
            _ => {}
        }
    }
}

impl Memory for Arg<'_> {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        self.as_value().each(found);
    }
}

impl Memory for [Arg<'_>] {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        self.iter().for_each(|argument| argument.each(found));
    }
}

impl Made for Value {
    type Raw = sys::accel_value_t;
    const EMPTY: Self::Raw = sys::accel_value_t::none();

    #[inline]
    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok(Value(raw))
    }
}

/// A value that may be left out.
impl Made for Option<Value> {
    type Raw = sys::accel_value_t;
    const EMPTY: Self::Raw = sys::accel_value_t::none();

    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok(Some(Value(raw)).filter(|value| !value.is_none()))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::None => formatter.write_str("None"),
            Kind::Bool => fmt::Debug::fmt(&(self.as_bool() == Some(true)), formatter),
            Kind::Int => fmt::Debug::fmt(&self.as_int().unwrap_or_default(), formatter),
            Kind::Double => fmt::Debug::fmt(&self.as_f64().unwrap_or_default(), formatter),
            // SAFETY: the kind says that it is a text, which the value owns.
            Kind::String => fmt::Debug::fmt(&unsafe { text(self.0.r#as.string) }, formatter),
            Kind::DType => fmt::Debug::fmt(&self.as_dtype(), formatter),
            Kind::Device => fmt::Debug::fmt(&self.as_device(), formatter),
            Kind::Tensor => fmt::Debug::fmt(&self.as_tensor(), formatter),
            Kind::List => formatter.debug_list().entries(self.iter()).finish(),
            Kind::Tuple => self.iter().fold(&mut formatter.debug_tuple(""), |tuple, item| tuple.field(item)).finish(),
            Kind::Map => {
                let keys = (0..self.len()).filter_map(|index| self.key_at(index));
                formatter.debug_map().entries(keys.zip(self.iter())).finish()
            }
            Kind::Bytes => write!(formatter, "{} bytes", self.as_bytes().map_or(0, <[u8]>::len)),
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Value::none()
    }
}

macro_rules! plain {
    ($($kind:ty, $number:ident => $value:expr;)*) => {$(
        impl From<$kind> for Value {
            #[inline]
            fn from($number: $kind) -> Self {
                Value($value)
            }
        }

        impl From<$kind> for Arg<'_> {
            #[inline]
            fn from($number: $kind) -> Self {
                Arg($value, PhantomData)
            }
        }
    )*};
}

plain! {
    bool, truth => sys::accel_value_t::bool(truth);
    i64, number => sys::accel_value_t::int(number);
    i32, number => sys::accel_value_t::int(number.into());
    f64, number => sys::accel_value_t::double(number);
    f32, number => sys::accel_value_t::double(number.into());
    DType, dtype => sys::accel_value_t::dtype(dtype.to_raw());
    Device, device => sys::accel_value_t::device(device.to_raw());
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        let value = Value(sys::accel_value_t::tensor(tensor.as_raw()));
        mem::forget(tensor); // the value owns it now
        value
    }
}

impl fmt::Debug for Arg<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_value(), formatter)
    }
}

/// An argument of an operator or module, which only borrows.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arg<'a>(sys::accel_value_t, PhantomData<&'a Value>);

impl Arg<'_> {
    /// Nothing: an optional argument that is left out.
    pub const fn none() -> Self {
        Arg(sys::accel_value_t::none(), PhantomData)
    }

    pub(crate) fn as_raw(&self) -> *const sys::accel_value_t {
        &self.0
    }

    /// The value that is borrowed.
    pub(crate) fn as_value(&self) -> &Value {
        // SAFETY: both are transparent, and what the argument borrows is alive. Nothing drops the value.
        unsafe { &*(self as *const Arg<'_>).cast::<Value>() }
    }
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    #[inline]
    fn from(tensor: &'a Tensor) -> Self {
        Arg(sys::accel_value_t::tensor(tensor.as_raw()), PhantomData)
    }
}

impl<'a> From<&'a Value> for Arg<'a> {
    #[inline]
    fn from(value: &'a Value) -> Self {
        Arg(value.0, PhantomData)
    }
}

impl<'a, T: Into<Arg<'a>>> From<Option<T>> for Arg<'a> {
    #[inline]
    fn from(argument: Option<T>) -> Self {
        argument.map_or(Arg::none(), Into::into)
    }
}

/// Integers as one value, for shapes.
pub(crate) fn int_list(items: &[i64]) -> Result<Value> {
    let (first, length) = array(items);
    made(|out| unsafe { sys::accel_value_int_list(first, length, out) })
}
