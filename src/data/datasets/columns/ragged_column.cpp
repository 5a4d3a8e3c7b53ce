// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "data/datasets/columns/column.hpp"

namespace accel::data {
namespace {

class RaggedColumn final : public Column {
 public:
  RaggedColumn(at::Tensor values, at::Tensor offsets)
      : values_(std::move(values)), offsets_(std::move(offsets)), ends_(offsets_.const_data_ptr<int64_t>()) {
    step_bytes_ = values_.element_size();
    for (const int64_t size : values_.sizes().slice(1)) step_bytes_ *= static_cast<size_t>(size);
  }
  int64_t length() const override { return offsets_.numel() - 1; }
  c10::IValue item(int64_t index) const override { return values_.narrow(0, ends_[index], row_length(index)); }

  Part batch(c10::IntArrayRef indices, const Collation& collation) const override {
    const Padding* const padding = collation.row_padding();
    std::vector<int64_t> lengths(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      lengths[i] = row_length(indices[i]);
      if (padding == nullptr && lengths[i] != lengths[0])
        fail(Status::kShapeMismatch, "item ", i, " of the batch (index ", indices[i], ") has ", lengths[i],
             " entries; expected ", lengths[0], " as item 0, or a loader that pads");
    }
    const Padding none;
    const PaddedRows rows(lengths, values_.sizes().slice(1), collation.batch_options(values_.options()),
                          padding != nullptr ? *padding : none);
    const auto* const from = static_cast<const char*>(values_.const_data_ptr());
    for (size_t i = 0; i < indices.size(); ++i)
      if (lengths[i] > 0)
        std::memcpy(rows.row_data(i), from + static_cast<size_t>(ends_[indices[i]]) * step_bytes_,
                    static_cast<size_t>(lengths[i]) * step_bytes_);
    return {rows.values(), rows.mask()};
  }

 private:
  int64_t row_length(int64_t index) const { return ends_[index + 1] - ends_[index]; }

  at::Tensor values_;
  at::Tensor offsets_;
  const int64_t* ends_;
  size_t step_bytes_;
};

void check_offsets(const at::Tensor& offsets, int64_t entries, const std::string& name) {
  const auto* const numbers = offsets.const_data_ptr<int64_t>();
  const int64_t rows = offsets.numel() - 1;
  require(numbers[0] >= 0, Status::kInvalidArgument, "the first offset of ", name, " is ", numbers[0],
          "; expected at least 0");
  for (int64_t row = 0; row < rows; ++row)
    if (numbers[row + 1] < numbers[row])
      fail(Status::kInvalidArgument, "row ", row, " of ", name, " begins at ", numbers[row], " and ends at ",
           numbers[row + 1], "; expected offsets that do not fall");
  require(numbers[rows] <= entries, Status::kShapeMismatch, "the last offset of ", name, " is ", numbers[rows],
          "; expected at most its ", entries, " entries");
}

}  // namespace

std::unique_ptr<const Column> ragged_column(const at::Tensor& values, const at::Tensor& offsets,
                                            const std::string& name) {
  require(values.defined() && values.dim() > 0 && values.layout() == at::kStrided, Status::kShapeMismatch, name,
          " of the dataset has no dimension; expected entries along the first one of a dense tensor");
  require(values.device().is_cpu(), Status::kUnsupported, name, " of the dataset is on ", values.device(),
          "; expected rows of different lengths on the CPU");
  require(offsets.defined() && offsets.dim() == 1 && offsets.numel() > 0 && offsets.scalar_type() == at::kLong &&
              offsets.device().is_cpu(),
          Status::kTypeMismatch, "the offsets of ", name,
          " are not an int64 tensor [rows + 1] on the CPU; expected where each row begins, and the end of the last");
  const at::Tensor begins = offsets.contiguous();
  check_offsets(begins, values.size(0), name);
  return std::make_unique<const RaggedColumn>(values.detach().resolve_conj().resolve_neg().contiguous(), begins);
}

}  // namespace accel::data
