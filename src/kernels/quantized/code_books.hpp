// SPDX-License-Identifier: Apache-2.0
// Code books: the values of 4-bit codes, for a scale of 1.
#pragma once

namespace accel::kernels {

// NormalFloat: with q = 1 - (1/32 + 1/30) / 2, the quantiles of the normal distribution at 8 evenly spaced
// probabilities of (1/2, q], the negatives of 7 of [-q, -1/2), and zero, all divided by the largest one.
constexpr float kNf4Values[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// Codes of fp4 without the sign, which is the highest bit: multiples of 1/12, and 1/192 for the smallest one.
constexpr float kFp4Magnitudes[8] = {0.0f, 1.0f / 192, 8.0f / 12, 1.0f, 4.0f / 12, 6.0f / 12, 2.0f / 12, 3.0f / 12};

constexpr float fp4_value(int code) { return code < 8 ? kFp4Magnitudes[code] : -kFp4Magnitudes[code - 8]; }

// Value of a 4-bit integer without an offset.
constexpr float kInt4Zero = 8;

}  // namespace accel::kernels
