// SPDX-License-Identifier: Apache-2.0
#include "data/loader_input.hpp"

#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

// The items in their order or shuffled, as many as the dataset has when an epoch begins.
class DatasetOrder final : public Sampler {
 public:
  DatasetOrder(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
      : dataset_(std::move(dataset)), shuffle_(options.shuffle), seed_(options.seed.value) {}
  int64_t length() const override { return dataset_->length(); }
  at::Tensor indices(int64_t epoch) const override {
    if (shuffle_) return SeedableRandomSampler(length(), seed_.value_or(0)).indices(epoch);
    return SequentialSampler(length()).indices(epoch);
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  bool shuffle_;
  std::optional<int64_t> seed_;  // settled before the first index is asked for
};

}  // namespace

Collation LoaderOptions::collation() const {
  using Kind = Collation::Kind;
  const Kind kind = collate_function ? Kind::kCallback : collate == Collate::kPad ? Kind::kPad : Kind::kStack;
  return {kind,
          {padding_value, pad_to_multiple_of, padding_side == PaddingSide::kLeft, padding_masks},
          collate_function,
          page_locked};
}

void LoaderInput::check() const {
  require((data.dataset != nullptr) != (data.iterable != nullptr), Status::kInvalidArgument,
          "a loader needs a dataset or a stream; expected one of them");
  require(data.sampler == nullptr || data.batch_sampler == nullptr, Status::kInvalidArgument,
          "a sampler and a batch sampler were given; expected one of them");
  const bool sampled = data.sampler != nullptr || data.batch_sampler != nullptr;
  require(!options.shuffle || !sampled, Status::kInvalidArgument,
          "shuffle is 1 and a sampler was given; expected one of them");
  require(data.iterable == nullptr || (!options.shuffle && !sampled), Status::kInvalidArgument,
          "the items of a stream come in its own order; expected neither shuffle nor a sampler");
  require(options.prefetch >= 0, Status::kInvalidArgument, "prefetch is ", options.prefetch.value,
          "; expected at least 0");
  const int64_t workers = options.num_workers.value_or(0);
  require(workers >= 0, Status::kInvalidArgument, "num_workers is ", workers, "; expected at least 0");
  require(workers == 0 || options.prefetch > 0, Status::kInvalidArgument, "prefetch is 0 and num_workers is ", workers,
          "; expected at least 1 batch for a worker to keep ready");
  require(options.batch_size >= 1, Status::kInvalidArgument, "batch_size is ", options.batch_size.value,
          "; expected at least 1");
  if (options.shuffle) SeedableRandomSampler(data.dataset->length(), 0);  // refuses nothing to draw from
}

std::shared_ptr<const BatchSampler> LoaderInput::batch_sampler() const {
  if (data.batch_sampler != nullptr) return data.batch_sampler;
  auto sampler = data.sampler;
  if (sampler == nullptr) sampler = std::make_shared<DatasetOrder>(data.dataset, options);
  return std::make_shared<OrderedBatchSampler>(std::move(sampler), options.batch_size.value, options.drop_last.value);
}

std::optional<int64_t> LoaderInput::batch_size() const {
  return data.batch_sampler != nullptr ? data.batch_sampler->batch_size() : options.batch_size.value;
}

bool LoaderInput::drop_last() const {
  return data.batch_sampler != nullptr ? data.batch_sampler->drop_last() : options.drop_last.value;
}

bool LoaderInput::calls_back() const {
  const bool data_calls_back = data.dataset != nullptr ? data.dataset->calls_back() : data.iterable->calls_back();
  return data_calls_back || options.collate_function != nullptr;
}

std::optional<int64_t> LoaderInput::length() const {
  return data.iterable != nullptr ? data.iterable->length() : data.dataset->length();
}

}  // namespace accel::data
