//! Digits of a digital clock, with noise (Breiman et al., 1984): the same samples in every language.
use accel::{Dataset, Result, Tensor};

pub const SEGMENTS: usize = 7;
pub const DIGITS: usize = 10;

/// Which segments each digit lights.
const LIT: [u8; DIGITS] = [0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f];

fn next(random: &mut u32) -> u32 {
    *random = random.wrapping_mul(1664525).wrapping_add(1013904223);
    *random
}

/// Features [samples, SEGMENTS] and labels [samples].
pub fn dataset(mut random: u32, samples: usize) -> Result<Dataset> {
    let (mut features, mut labels) = (Vec::with_capacity(samples * SEGMENTS), Vec::with_capacity(samples));
    for _ in 0..samples {
        let digit = (next(&mut random) >> 16) as usize % DIGITS;
        labels.push(digit as i64);
        for segment in 0..SEGMENTS {
            let noise = (next(&mut random) >> 24) as f32 / 128.0 - 1.0;
            features.push(f32::from(LIT[digit] >> segment & 1) + noise);
        }
    }
    let features = Tensor::from_vec(features, &[samples as i64, SEGMENTS as i64])?;
    Dataset::tensors(&[&features, &Tensor::from_vec(labels, &[samples as i64])?])
}
