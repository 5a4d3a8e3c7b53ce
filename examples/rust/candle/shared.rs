//! Tensors of libaccel in the memory of Candle's.
use accel::prelude::*;
use candle_core::{CpuStorage, DType as CandleType, Storage, Tensor as CandleTensor};
use std::ffi::c_void;

/// A tensor in the same memory, which the clone of Candle's tensor keeps. Without a copy, with any strides.
pub fn tensor(of: &CandleTensor) -> accel::Result<Tensor> {
    let (storage, layout) = of.storage_and_layout();
    let first = match &*storage {
        Storage::Cpu(CpuStorage::F32(elements)) => elements.as_ptr().cast::<c_void>(),
        Storage::Cpu(CpuStorage::F16(elements)) => elements.as_ptr().cast(),
        Storage::Cpu(CpuStorage::BF16(elements)) => elements.as_ptr().cast(),
        _ => return Err(unexpected(of)),
    };
    let dtype = match of.dtype() {
        CandleType::F32 => DType::Float32,
        CandleType::F16 => DType::Float16,
        CandleType::BF16 => DType::BFloat16,
        _ => return Err(unexpected(of)),
    };
    let size = of.dtype().size_in_bytes();
    let whole = |numbers: &[usize]| numbers.iter().map(|number| *number as i64).collect::<Vec<_>>();
    let (shape, strides) = (whole(of.dims()), whole(layout.stride()));
    // SAFETY: the layout is inside of the storage, a vector that stays where it is. Candle and libaccel use it by turns: the program
    // computes between two steps, and waits for each.
    unsafe {
        let data = first.cast::<u8>().add(layout.start_offset() * size) as *mut c_void;
        Tensor::from_raw_parts(data, &shape, Some(&strides), dtype, Device::Cpu, of.clone())
    }
}

fn unexpected(of: &CandleTensor) -> Error {
    let message = format!("a tensor of {:?} on {:?}: expected f32, f16 or bf16 on the CPU", of.dtype(), of.device());
    Error::new(ErrorCode::Unsupported, message)
}
