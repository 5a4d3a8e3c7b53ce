// SPDX-License-Identifier: Apache-2.0
// Decodes the ids since the latest text twice, alone and with the new ones: the difference is new. A few ids are
// decoded again each time, because what one of them adds depends on the ids before.
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "text/tokenizer.hpp"

namespace accel::tokenizers {
namespace {

// Stands for bytes that are no character yet.
constexpr std::string_view kReplacement = "\xef\xbf\xbd";
// A character has at most four bytes. Behind more ids without one, the bytes will not become any.
constexpr size_t kMostPendingIds = 16;

DecodeSettings stream_settings(DecodeSettings settings) {
  require(!settings.clean_up_spaces.value.value_or(false), Status::kInvalidArgument,
          "clean_up_spaces is 1; expected 0 or unset for a stream, whose text cannot change once it is out");
  settings.clean_up_spaces.value = false;
  return settings;
}

}  // namespace

DecodeStream::DecodeStream(std::shared_ptr<const Tokenizer> tokenizer, const DecodeSettings& settings)
    : tokenizer_(std::move(tokenizer)), settings_(stream_settings(settings)) {}

std::string DecodeStream::step(int64_t id) {
  require(id >= 0, Status::kInvalidArgument, "id is ", id, "; expected at least 0");
  ids_.push_back(id);
  const std::string whole = tokenizer_->decode(ids_.data(), ids_.size(), settings_);
  const bool is_pending = ends_with(whole, kReplacement) && ids_.size() - prefix_ids_ <= kMostPendingIds;
  if (is_pending || whole.size() <= prefix_.size()) return "";
  std::string added = whole.substr(prefix_.size());
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(prefix_ids_));
  prefix_ids_ = ids_.size();
  prefix_ = tokenizer_->decode(ids_.data(), ids_.size(), settings_);
  return added;
}

std::string DecodeStream::finish() {
  const std::string whole = tokenizer_->decode(ids_.data(), ids_.size(), settings_);
  std::string added = whole.size() > prefix_.size() ? whole.substr(prefix_.size()) : "";
  ids_.clear();
  prefix_.clear();
  prefix_ids_ = 0;
  return added;
}

}  // namespace accel::tokenizers
