// SPDX-License-Identifier: Apache-2.0
#include "data/iterable_datasets/callback_iterable_dataset.hpp"

#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

class CallbackIterator final : public DatasetIterator {
 public:
  CallbackIterator(std::shared_ptr<const IterableDatasetFunctions> functions, int64_t reader)
      : functions_(std::move(functions)), reader_(reader) {}
  ~CallbackIterator() override {
    if (functions_->end) functions_->end(reader_);
  }
  CallbackIterator(const CallbackIterator&) = delete;
  CallbackIterator& operator=(const CallbackIterator&) = delete;

  std::optional<c10::IValue> next() override {
    if (has_ended_) return std::nullopt;
    auto item = functions_->next(reader_);
    has_ended_ = !item.has_value();
    return item;
  }

  int64_t skip(int64_t count) override {
    if (!functions_->skip) return DatasetIterator::skip(count);
    if (has_ended_ || count <= 0) return 0;
    const int64_t skipped = functions_->skip(reader_, count);
    require(skipped >= 0 && skipped <= count, Status::kInvalidArgument, "the stream skipped ", skipped,
            " items; expected at most the ", count, " that it was asked to");
    has_ended_ = skipped < count;
    return skipped;
  }

 private:
  std::shared_ptr<const IterableDatasetFunctions> functions_;
  int64_t reader_;
  bool has_ended_ = false;  // it is not asked again
};

}  // namespace

CallbackIterableDataset::CallbackIterableDataset(IterableDatasetFunctions functions, std::optional<int64_t> length,
                                                 int64_t num_shards)
    : functions_(std::make_shared<const IterableDatasetFunctions>(std::move(functions))),
      length_(length),
      num_shards_(num_shards) {
  require(length.value_or(0) >= 0, Status::kInvalidArgument, "the stream's length is ", length.value_or(0),
          "; expected at least 0");
  require(num_shards >= 1, Status::kInvalidArgument, "num_shards is ", num_shards, "; expected at least 1");
}

std::unique_ptr<DatasetIterator> CallbackIterableDataset::read(int64_t epoch, int64_t shard,
                                                               int64_t num_readers) const {
  return std::make_unique<CallbackIterator>(functions_, functions_->begin(epoch, shard, num_readers));
}

}  // namespace accel::data
