// SPDX-License-Identifier: Apache-2.0
#include "data/iterable_datasets/interleaved_datasets.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

// SplitMix64 (Steele, Lea, Flood, 2014): one draw is a few instructions, and any number is a good seed.
uint64_t mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15U;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9U;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebU;
  return number ^ (number >> 31);
}

class InterleavedIterator final : public DatasetIterator {
 public:
  InterleavedIterator(std::vector<std::unique_ptr<DatasetIterator>> sources, std::vector<double> weights, uint64_t seed,
                      InterleavedDatasets::End end)
      : sources_(std::move(sources)), weights_(std::move(weights)), seed_(seed), end_(end) {
    for (const double weight : weights_) total_ += weight;
  }

  std::optional<c10::IValue> next() override {
    std::optional<c10::IValue> item;
    take([&](DatasetIterator& source) { return (item = source.next()).has_value(); });
    return item;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count && take([](DatasetIterator& source) { return source.skip(1) == 1; })) ++skipped;
    return skipped;
  }

 private:
  // Draws sources until one has an item.
  template <typename Take>
  bool take(Take&& take_from) {
    while (total_ > 0) {
      const size_t source = draw();
      if (take_from(*sources_[source])) {
        ++draws_;
        return true;
      }
      ++draws_;
      end_source(source);
    }
    return false;
  }

  size_t draw() const {
    const double number = std::ldexp(static_cast<double>(mixed(seed_ + draws_) >> 11), -53) * total_;
    double sum = 0;
    size_t last = 0;
    for (size_t source = 0; source < weights_.size(); ++source) {
      if (weights_[source] == 0) continue;
      last = source;
      sum += weights_[source];
      if (number < sum) break;
    }
    return last;
  }

  void end_source(size_t source) {
    weights_[source] = 0;
    total_ = 0;
    if (end_ == InterleavedDatasets::End::kFirst) return;
    for (const double weight : weights_) total_ += weight;
  }

  std::vector<std::unique_ptr<DatasetIterator>> sources_;
  std::vector<double> weights_;  // 0 for those that have ended
  uint64_t seed_;
  uint64_t draws_ = 0;
  double total_ = 0;  // 0 at the end
  InterleavedDatasets::End end_;
};

}  // namespace

InterleavedDatasets::InterleavedDatasets(std::vector<std::shared_ptr<const IterableDataset>> sources,
                                         std::vector<double> weights, int64_t seed, End end)
    : sources_(std::move(sources)), weights_(std::move(weights)), seed_(seed), end_(end) {
  require(!sources_.empty(), Status::kInvalidArgument, "0 sources have no items to merge; expected at least one");
  require(weights_.size() == sources_.size(), Status::kInvalidArgument, weights_.size(), " weights are given for ",
          sources_.size(), " sources; expected one for each");
  double total = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    require(std::isfinite(weights_[i]) && weights_[i] > 0, Status::kInvalidArgument, "the weight of source ", i, " is ",
            weights_[i], "; expected a number above 0");
    total += weights_[i];
  }
  require(std::isfinite(total), Status::kInvalidArgument, "the weights add up to ", total, "; expected a finite sum");
}

std::optional<int64_t> InterleavedDatasets::length() const {
  if (end_ == End::kFirst && sources_.size() > 1) return std::nullopt;
  int64_t total = 0;
  for (const auto& source : sources_) {
    const auto length = source->length();
    if (!length) return std::nullopt;
    total += *length;
  }
  return total;
}

int64_t InterleavedDatasets::num_shards() const {
  int64_t fewest = sources_[0]->num_shards();
  for (const auto& source : sources_) fewest = std::min(fewest, source->num_shards());
  return fewest;
}

bool InterleavedDatasets::calls_back() const {
  return std::any_of(sources_.begin(), sources_.end(), [](const auto& source) { return source->calls_back(); });
}

std::unique_ptr<DatasetIterator> InterleavedDatasets::read(int64_t epoch, int64_t shard, int64_t num_readers) const {
  std::vector<std::unique_ptr<DatasetIterator>> readers;
  for (const auto& source : sources_) readers.push_back(source->read(epoch, shard, num_readers));
  const uint64_t seed =
      mixed(mixed(mixed(static_cast<uint64_t>(seed_)) + static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(shard));
  return std::make_unique<InterleavedIterator>(std::move(readers), weights_, seed, end_);
}

}  // namespace accel::data
