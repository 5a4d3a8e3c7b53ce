// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/gguf/gguf_blocks.hpp"

#include <c10/util/Half.h>

#include <array>
#include <cstring>

#include "base/error.hpp"

namespace accel::checkpoint {
namespace {

using kernels::WeightCode;
using kernels::WeightFormat;

constexpr int64_t kSmallBlock = 32, kLargeBlock = 256;

float read_half(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
}

// Two codes of 4 bits a byte, the earlier one in its high half.
void pack_codes(const uint8_t* values, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; i += 2) codes[i / 2] = static_cast<uint8_t>(values[i] << 4 | values[i + 1]);
}

// In a block of 32 the low halves of 16 bytes come before the high ones; a fifth bit of each is in `fifth_bits`.
void unpack_halves(const uint8_t* bytes, uint32_t fifth_bits, uint8_t* values) {
  for (int i = 0; i < 16; i++) {
    values[i] = static_cast<uint8_t>((bytes[i] & 15) | (fifth_bits >> i & 1) << 4);
    values[i + 16] = static_cast<uint8_t>(bytes[i] >> 4 | (fifth_bits >> (i + 16) & 1) << 4);
  }
}

uint32_t read_bits(const uint8_t* bytes) {
  uint32_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

void split_small(GgufType type, const uint8_t* block, uint8_t* codes, float* scale, float* offset) {
  *scale = read_half(block);
  if (type == GgufType::kQ80) {
    std::memcpy(codes, block + 2, kSmallBlock);
    return;
  }
  const bool has_offset = type == GgufType::kQ41 || type == GgufType::kQ51;
  const bool has_fifth_bits = type == GgufType::kQ50 || type == GgufType::kQ51;
  const uint8_t* next = block + 2;
  if (has_offset) {
    *offset = read_half(next);
    next += 2;
  }
  uint32_t fifth_bits = 0;
  if (has_fifth_bits) {
    fifth_bits = read_bits(next);
    next += 4;
  }
  std::array<uint8_t, kSmallBlock> values;
  unpack_halves(next, fifth_bits, values.data());
  if (!has_fifth_bits) return pack_codes(values.data(), kSmallBlock, codes);
  const int middle = has_offset ? 0 : 16;
  for (int i = 0; i < kSmallBlock; i++) codes[i] = static_cast<uint8_t>(values[i] - middle);
}

// The scales and the minima of the 8 sub-blocks of Q4_K and Q5_K are 6 bits each, in 12 bytes: the low 6 bits of bytes
// 0 to 3 and 4 to 7, and for the last four the halves of bytes 8 to 11 below the high bits of the others.
void split_scales(const uint8_t* block, float* scales, float* offsets) {
  const float scale = read_half(block), least = read_half(block + 2);
  const uint8_t* const bits = block + 4;
  for (int i = 0; i < 8; i++) {
    const int of_scale = i < 4 ? bits[i] & 63 : (bits[i + 4] & 15) | bits[i - 4] >> 6 << 4;
    const int of_least = i < 4 ? bits[i + 4] & 63 : bits[i + 4] >> 4 | bits[i] >> 6 << 4;
    scales[i] = scale * static_cast<float>(of_scale);
    offsets[i] = -(least * static_cast<float>(of_least));
  }
}

void split_q4_k(const uint8_t* block, uint8_t* codes, float* scales, float* offsets) {
  split_scales(block, scales, offsets);
  const uint8_t* const halves = block + 16;
  std::array<uint8_t, kLargeBlock> values;
  for (int i = 0; i < kLargeBlock; i++) {
    const uint8_t byte = halves[i / 64 * 32 + i % 32];
    values[i] = i % 64 < 32 ? byte & 15 : byte >> 4;
  }
  pack_codes(values.data(), kLargeBlock, codes);
}

void split_q5_k(const uint8_t* block, uint8_t* codes, float* scales, float* offsets) {
  split_scales(block, scales, offsets);
  const uint8_t *const fifth_bits = block + 16, *const halves = block + 48;
  for (int i = 0; i < kLargeBlock; i++) {
    const uint8_t byte = halves[i / 64 * 32 + i % 32];
    const int fifth = fifth_bits[i % 32] >> (i / 32) & 1;
    codes[i] = static_cast<uint8_t>((i % 64 < 32 ? byte & 15 : byte >> 4) | fifth << 4);
  }
}

void split_q6_k(const uint8_t* block, uint8_t* codes, float* scales) {
  const uint8_t *const halves = block, *const high_bits = block + 128, *const of_groups = block + 192;
  const float scale = read_half(block + 208);
  for (int i = 0; i < 16; i++) scales[i] = scale * static_cast<float>(static_cast<int8_t>(of_groups[i]));
  for (int i = 0; i < kLargeBlock; i++) {
    const int part = i / 128, within = i % 128;
    const uint8_t byte = halves[part * 64 + within % 64];
    const int high = high_bits[part * 32 + within % 32] >> (within / 32 * 2) & 3;
    codes[i] = static_cast<uint8_t>(((within < 64 ? byte & 15 : byte >> 4) | high << 4) - 32);
  }
}

}  // namespace

bool is_quantized(GgufType type) { return block_of(type).numbers > 1; }

kernels::WeightFormat weight_format(GgufType type) {
  switch (type) {
    case GgufType::kQ40:
      return {WeightCode::kInt4, kSmallBlock, false};
    case GgufType::kQ41:
    case GgufType::kQ4K:
      return {WeightCode::kInt4, kSmallBlock, true};
    case GgufType::kQ50:
    case GgufType::kQ80:
      return {WeightCode::kInt8, kSmallBlock, false};
    case GgufType::kQ51:
    case GgufType::kQ5K:
      return {WeightCode::kInt8, kSmallBlock, true};
    case GgufType::kQ6K:
      return {WeightCode::kInt8, 16, false};
    case GgufType::kFloat32:
    case GgufType::kFloat16:
    case GgufType::kBFloat16:
      break;
  }
  fail(Status::kInvalidArgument, "the GGUF type ", block_of(type).name, " is not quantized");
}

void split_blocks(GgufType type, const uint8_t* blocks, int64_t count, uint8_t* codes, float* scales, float* offsets) {
  const GgufBlock& block = block_of(type);
  const WeightFormat format = weight_format(type);
  const int64_t codes_of_block = block.numbers * kernels::code_bits(format.code) / 8;
  const int64_t groups = block.numbers / format.group;
  for (int64_t i = 0; i < count; i++) {
    const uint8_t* const from = blocks + i * block.bytes;
    uint8_t* const to = codes + i * codes_of_block;
    float* const scale = scales + i * groups;
    float* const offset = format.has_offsets ? offsets + i * groups : nullptr;
    if (type == GgufType::kQ4K)
      split_q4_k(from, to, scale, offset);
    else if (type == GgufType::kQ5K)
      split_q5_k(from, to, scale, offset);
    else if (type == GgufType::kQ6K)
      split_q6_k(from, to, scale);
    else
      split_small(type, from, to, scale, offset);
  }
}

}  // namespace accel::checkpoint
