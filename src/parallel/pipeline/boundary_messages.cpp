// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/boundary_messages.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

// Limits of the memory that is posted ahead.
constexpr size_t kMostForeseenTensors = 8;
constexpr int64_t kMostForeseenBytes = 16 << 20;
constexpr size_t kMostTensors = kBoundarySlots - kFirstTensor - kMostForeseenTensors;

at::Tensor bytes_of(std::string_view text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

size_t count_foreseen(at::IntArrayRef bytes) {
  if (bytes.empty() || bytes.size() > kMostForeseenTensors) return 0;
  // An announcement must be shorter than the first tensor, in whose place it comes.
  if (bytes[0] <= static_cast<int64_t>(sizeof(int64_t))) return 0;
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) <= kMostForeseenBytes ? bytes.size() : 0;
}

SentValues::Described SentValues::next_foreseen() {
  if (posted_ahead_ == 0) return {};
  const Described foreseen = foreseen_.front();
  foreseen_.pop_front();
  foreseen_.push_back(latest_);
  return foreseen;
}

BoundaryMessages SentValues::announce(int64_t announcement, const Described& foreseen) {
  BoundaryMessages messages{{foreseen.foreseen_tensors > 0 ? kFirstTensor : kAnnouncement,
                             at::scalar_tensor(announcement, at::kLong).view({1})}};
  for (size_t index = 1; index < foreseen.foreseen_tensors; index++)
    messages.push_back({kFirstTensor + index, at::empty({0}, at::kByte)});
  return messages;
}

BoundaryMessages SentValues::put(const c10::IValue& value) {
  std::vector<at::Tensor> tensors = tensors_of(value);
  require(tensors.size() <= kMostTensors, Status::kUnsupported, "a stage returns ", tensors.size(),
          " tensors; expected at most ", kMostTensors);
  std::string outline = outline_of(value), description;
  bool is_new = outline.empty() || outline != outline_;
  if (is_new) {
    description = describe(value, form_.dtype);
    is_new = description != description_;
  }
  std::vector<int64_t> bytes;
  for (at::Tensor& tensor : tensors) {
    tensor = form_.split.own_part(sent_form(tensor, form_.dtype), ranks_);
    bytes.push_back(static_cast<int64_t>(tensor.nbytes()));
  }
  if (is_new) latest_ = {latest_.version + 1, count_foreseen(bytes)};
  const Described foreseen = next_foreseen();
  const bool is_foreseen = foreseen.foreseen_tensors > 0 && foreseen.version == latest_.version;
  BoundaryMessages messages;
  if (!is_foreseen) {
    messages = announce(is_new ? static_cast<int64_t>(description.size()) : kAsBefore, foreseen);
    if (is_new) messages.push_back({kDescription, bytes_of(description)});
  }
  size_t slot = kFirstTensor + (is_foreseen ? 0 : foreseen.foreseen_tensors);
  for (at::Tensor& tensor : tensors) messages.push_back({slot++, std::move(tensor)});
  outline_ = std::move(outline);
  if (is_new) description_ = std::move(description);
  return messages;
}

BoundaryMessages SentValues::put_failure() { return announce(kSenderFailed, next_foreseen()); }

}  // namespace accel::parallel
