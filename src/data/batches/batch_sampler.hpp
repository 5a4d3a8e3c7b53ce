// SPDX-License-Identifier: Apache-2.0
// Batch samplers: which items form each batch of an epoch. @accelerate torch.utils.data.BatchSampler
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/sampler.hpp"

namespace accel::data {

struct EpochBatches {
  at::Tensor indices;            // int64 and contiguous, on the CPU
  std::vector<int64_t> offsets;  // where each batch begins, and their end; empty where they are cut by the batch size

  // Batches, or items where they are cut by the batch size.
  int64_t count() const { return offsets.empty() ? indices.numel() : static_cast<int64_t>(offsets.size()) - 1; }
};

class BatchSampler {
 public:
  virtual ~BatchSampler() = default;
  // Unset: batches of any sizes.
  virtual std::optional<int64_t> batch_size() const = 0;
  virtual bool drop_last() const = 0;
  // An epoch has the same batches each time, on every rank.
  virtual EpochBatches batches(int64_t epoch) const = 0;
  // Items of an epoch where batches have a size, else their number.
  virtual int64_t count(int64_t epoch) const;
};

// A sampler's order, cut.
class OrderedBatchSampler final : public BatchSampler {
 public:
  OrderedBatchSampler(std::shared_ptr<const Sampler> sampler, int64_t batch_size, bool drop_last);
  std::optional<int64_t> batch_size() const override { return batch_size_; }
  bool drop_last() const override { return drop_last_; }
  EpochBatches batches(int64_t epoch) const override;
  int64_t count(int64_t) const override { return sampler_->length(); }

 private:
  std::shared_ptr<const Sampler> sampler_;
  int64_t batch_size_;
  bool drop_last_;
};

// Batches that a function chooses. With a batch size, all but the last one must have it.
class CallbackBatchSampler final : public BatchSampler {
 public:
  using Batches = std::function<std::vector<std::vector<int64_t>>(int64_t epoch)>;
  CallbackBatchSampler(Batches batches, std::optional<int64_t> batch_size, bool drop_last);
  std::optional<int64_t> batch_size() const override { return batch_size_; }
  bool drop_last() const override { return drop_last_; }
  EpochBatches batches(int64_t epoch) const override;

 private:
  Batches batches_;
  std::optional<int64_t> batch_size_;
  bool drop_last_;
};

}  // namespace accel::data
