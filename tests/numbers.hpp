// SPDX-License-Identifier: Apache-2.0
// Numbers 0, 1, 2, ... to load, and loaders of several ranks that the tests run one after the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/dataloader.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/prepared_dataloader.hpp"
#include "tensor/tree.hpp"

namespace accel::tests {

using Numbers = std::vector<int64_t>;
using Batches = std::vector<Numbers>;

class NumberIterator final : public data::DatasetIterator {
 public:
  explicit NumberIterator(Numbers numbers) : numbers_(std::move(numbers)) {}
  std::optional<c10::IValue> next() override {
    if (place_ >= numbers_.size()) return std::nullopt;
    return c10::IValue(numbers_[place_++]);
  }

 private:
  Numbers numbers_;
  size_t place_ = 0;
};

// A stream of numbers in shards of any sizes, which says its length or does not.
class NumberIterable final : public data::IterableDataset {
 public:
  NumberIterable(int64_t size, bool sized) : NumberIterable(Numbers{size}, sized) {}
  NumberIterable(Numbers shards, bool sized) : shards_(std::move(shards)), sized_(sized) {}
  std::optional<int64_t> length() const override {
    int64_t items = 0;
    for (const int64_t shard : shards_) items += shard;
    return sized_ ? std::optional(items) : std::nullopt;
  }
  int64_t num_shards() const override { return static_cast<int64_t>(shards_.size()); }
  std::unique_ptr<data::DatasetIterator> read(int64_t, int64_t shard, int64_t num_readers) const override {
    Numbers numbers;
    int64_t first = 0;
    for (int64_t i = 0; i < num_shards(); first += shards_[static_cast<size_t>(i++)])
      for (int64_t k = 0; i % num_readers == shard && k < shards_[static_cast<size_t>(i)]; ++k)
        numbers.push_back(first + k);
    return std::make_unique<NumberIterator>(std::move(numbers));
  }

 private:
  Numbers shards_;
  bool sized_;
};

// "map", "stream" or "sized_stream".
inline data::LoaderData numbers(const std::string& kind, int64_t size) {
  data::LoaderData data;
  if (kind == "map")
    data.dataset = std::make_shared<data::TensorDataset>(std::vector<at::Tensor>{at::arange(size, at::kLong)});
  else
    data.iterable = std::make_shared<NumberIterable>(size, kind == "sized_stream");
  return data;
}

inline Numbers numbers_of(const c10::IValue& batch) {
  const at::Tensor tensor = batch.isTensor() ? batch.toTensor() : batch.toListRef()[0].toTensor();
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

inline std::shared_ptr<data::PreparedDataLoader> prepared(const data::DataLoader& loader,
                                                          const data::ShardOptions& sharding) {
  return std::make_shared<data::PreparedDataLoader>(loader, sharding);
}

inline Batches epoch_of(data::Loader& loader) {
  Batches batches;
  while (const auto batch = loader.next()) batches.push_back(numbers_of(*batch));
  return batches;
}

}  // namespace accel::tests
