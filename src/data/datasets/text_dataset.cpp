#include "data/datasets/text_dataset.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "data/datasets/text_source.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

c10::IValue pair_of(const at::Tensor& input, const at::Tensor& target) {
  auto pair = tree::new_list();
  pair.reserve(2);
  pair.push_back(input);
  pair.push_back(target);
  return pair;
}

}  // namespace

TextDataset::TextDataset(const std::string& path, const std::optional<std::string>& suffix, int64_t sequence_length)
    : sequence_length_(sequence_length) {
  require(sequence_length >= 1, Status::kInvalidArgument, "sequence_length is ", sequence_length,
          "; expected at least 1");
  source_ = std::make_unique<const TextSource>(path, suffix);
  length_ = (source_->size() - 1) / sequence_length;
  require(source_->size() > sequence_length, Status::kInvalidArgument, "text ", path, " has ", source_->size(),
          " bytes; expected at least ", sequence_length + 1, " for one window of ", sequence_length);
}

TextDataset::~TextDataset() = default;

c10::IValue TextDataset::read_item(int64_t index) const {
  const at::Tensor input = at::empty({sequence_length_}, at::kLong);
  const at::Tensor target = at::empty({sequence_length_}, at::kLong);
  source_->read(index * sequence_length_, sequence_length_, input.mutable_data_ptr<int64_t>());
  source_->read(index * sequence_length_ + 1, sequence_length_, target.mutable_data_ptr<int64_t>());
  return pair_of(input, target);
}

c10::IValue TextDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  if (collation.kind != Collation::Kind::kStack) return Dataset::read_batch(indices, collation);
  const auto rows = static_cast<int64_t>(indices.size());
  const at::Tensor input = at::empty({rows, sequence_length_}, at::kLong);
  const at::Tensor target = at::empty({rows, sequence_length_}, at::kLong);
  auto* const inputs = input.mutable_data_ptr<int64_t>();
  auto* const targets = target.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = indices[row] * sequence_length_;
    source_->read(begin, sequence_length_, inputs + row * sequence_length_);
    source_->read(begin + 1, sequence_length_, targets + row * sequence_length_);
  }
  return pair_of(input, target);
}

}  // namespace accel::data
