// SPDX-License-Identifier: Apache-2.0
//! Element types and devices.
use crate::call::{Made, Optional};
use crate::device_type_name;
use crate::error::{check, text, Error, ErrorCode, Result};
use crate::strings::c_string;
use accel_sys as sys;
use std::fmt;
use std::str::FromStr;

macro_rules! dtypes {
    ($($(#[$text:meta])* $name:ident = $number:ident,)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$text])* $name,)*
            /// One of LibTorch that has no number here, a quantized one for example. No call takes it.
            Other,
        }

        impl DType {
            pub(crate) fn to_raw(self) -> i32 {
                match self {
                    $(Self::$name => sys::$number,)*
                    Self::Other => -1,
                }
            }

            pub(crate) fn from_raw(number: i32) -> Option<Self> {
                match number {
                    $(sys::$number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

include!("generated/dtypes.rs");

impl Made for DType {
    type Raw = i32;
    const EMPTY: i32 = 0;

    unsafe fn of(number: i32) -> Result<Self> {
        let message = || Error::new(ErrorCode::Unsupported, format!("dtype {number}: not known here"));
        DType::from_raw(number).ok_or_else(message)
    }
}

impl Optional for DType {
    type Raw = i32;
    const UNSET: i32 = sys::ACCEL_UNSET;

    fn to_raw(self) -> i32 {
        self.to_raw()
    }
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        unsafe { sys::accel_dtype_size(self.to_raw()) }
    }

    /// For what the C API has no number of.
    pub(crate) fn known_or_other(number: i32) -> Self {
        DType::from_raw(number).unwrap_or(DType::Other)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unsafe { text(sys::accel_dtype_name(self.to_raw())) }.as_str() {
            "" => fmt::Debug::fmt(self, formatter),
            name => formatter.write_str(name),
        }
    }
}

impl FromStr for DType {
    type Err = crate::Error;

    fn from_str(name: &str) -> Result<Self> {
        let (name, mut number) = (c_string(name)?, 0);
        check(unsafe { sys::accel_dtype_from_name(name.as_ptr(), &mut number) })?;
        Ok(DType::from_raw(number).expect("a dtype that has a name"))
    }
}

/// Rust types that are elements of tensors. (A `bool` is not: memory that other code writes may hold other bytes.)
pub trait Element: Copy + Send + Sync + 'static + private::Sealed {
    /// The element type of the tensor.
    const DTYPE: DType;
}

mod private {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($kind:ty = $dtype:ident),* $(,)?) => {$(
        impl private::Sealed for $kind {}
        impl Element for $kind {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    u8 = UInt8, i8 = Int8, i16 = Int16, i32 = Int32, i64 = Int64, f32 = Float32, f64 = Float64, u16 = UInt16, u32 = UInt32,
    u64 = UInt64,
}

#[cfg(feature = "half")]
elements! {
    half::f16 = Float16, half::bf16 = BFloat16,
}

/// Where a tensor's elements are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// The memory of the host.
    #[default]
    Cpu,
    /// A CUDA device by its number.
    Cuda(i32),
    /// The CUDA device that is the current one.
    CurrentCuda,
    /// Shapes without data.
    Meta,
    /// A device of another type, `accel_sys::ACCEL_DEVICE_XPU` for example, by its number; -1 is the current one.
    Other(i32, i32),
}

impl Device {
    pub(crate) fn to_raw(self) -> sys::accel_device_t {
        let (kind, index) = match self {
            Device::Cpu => (sys::ACCEL_DEVICE_CPU, -1),
            Device::Cuda(index) => (sys::ACCEL_DEVICE_CUDA, index),
            Device::CurrentCuda => (sys::ACCEL_DEVICE_CUDA, -1),
            Device::Meta => (sys::ACCEL_DEVICE_META, -1),
            Device::Other(kind, index) => (kind, index),
        };
        sys::accel_device_t { r#type: kind, index }
    }

    pub(crate) fn from_raw(device: sys::accel_device_t) -> Self {
        match (device.r#type, device.index) {
            (sys::ACCEL_DEVICE_CUDA, -1) => Device::CurrentCuda,
            (sys::ACCEL_DEVICE_CUDA, index) => Device::Cuda(index),
            (sys::ACCEL_DEVICE_META, _) => Device::Meta,
            (sys::ACCEL_DEVICE_CPU, _) => Device::Cpu,
            (kind, index) => Device::Other(kind, index),
        }
    }

    /// How many CUDA devices can be used now.
    pub fn cuda_count() -> usize {
        Device::CurrentCuda.count()
    }

    /// How many devices of this type can be used now.
    pub fn count(self) -> usize {
        unsafe { sys::accel_device_count(self.to_raw().r#type) }.max(0) as usize
    }
}

impl Made for Device {
    type Raw = sys::accel_device_t;
    const EMPTY: Self::Raw = sys::accel_device_t { r#type: sys::ACCEL_DEVICE_CPU, index: -1 };

    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok(Device::from_raw(raw))
    }
}

impl FromStr for Device {
    type Err = crate::Error;

    /// Reads "cpu", "cuda:1", "meta", or the name that the plugin of a device registered.
    fn from_str(name: &str) -> Result<Self> {
        let name = c_string(name)?;
        let mut device = Device::Cpu.to_raw();
        check(unsafe { sys::accel_device_parse(name.as_ptr(), &mut device) })?;
        Ok(Device::from_raw(device))
    }
}

/// "cpu", "cuda:1", "meta".
impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.to_raw();
        out.write_str(&device_type_name(raw.r#type))?;
        if raw.index < 0 {
            return Ok(());
        }
        write!(out, ":{}", raw.index)
    }
}
