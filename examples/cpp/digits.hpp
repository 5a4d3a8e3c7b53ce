// Digits of a digital clock, with noise (Breiman et al., 1984): the same samples in every language.
#pragma once

#include <accel.hpp>
#include <cstdint>
#include <vector>

constexpr int kSegments = 7, kDigits = 10;

inline accel::Dataset make_digits(std::uint32_t random, std::int64_t samples) {
  constexpr unsigned char segments[kDigits] = {0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f};
  const auto next = [&random] { return random = random * 1664525u + 1013904223u; };
  std::vector<float> features;
  std::vector<std::int64_t> labels;
  for (std::int64_t n = 0; n < samples; n++) {
    labels.push_back((next() >> 16) % kDigits);
    for (int i = 0; i < kSegments; i++) {
      const float noise = static_cast<float>(next() >> 24) / 128.0f - 1.0f;
      features.push_back(static_cast<float>(segments[labels.back()] >> i & 1) + noise);
    }
  }
  return accel::Dataset::tensors({accel::Tensor::from_data(features.data(), {samples, kSegments}, ACCEL_DTYPE_FLOAT32),
                                  accel::Tensor::from_data(labels.data(), {samples}, ACCEL_DTYPE_INT64)});
}

inline accel::Dataloader make_loader(std::uint32_t random, std::int64_t samples, std::int64_t batch_size,
                                     bool shuffle) {
  accel::DataloaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = shuffle;
  return accel::Dataloader::create(make_digits(random, samples), options);
}
