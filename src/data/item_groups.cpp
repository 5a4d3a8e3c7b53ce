#include "data/item_groups.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::data {

ItemGroups::ItemGroups(Open open, const Part& part)
    : open_(std::move(open)), part_(part), first_known_(part.done == 0), read_(part.done) {}

std::optional<c10::IValue> ItemGroups::take() {
  auto item = reader_->next();
  if (item) {
    ++read_;
    return item;
  }
  require(!part_.items || read_ >= *part_.items, Status::kInvalidState, "the stream ended after ", read_,
          " items; expected ", part_.items.value_or(0), ", its length");
  ended_ = true;
  return std::nullopt;
}

// Goes on with a group that an error left half read.
void ItemGroups::fill(Group& group) {
  if (reader_ == nullptr) {
    auto reader = open_();
    if (part_.done > 0) reader->skip(part_.done);
    reader_ = std::move(reader);
  }
  const bool first = first_known_ && read_ - group.observed == 0;
  while (group.observed < part_.size && !ended_) {
    const bool wanted = group.observed >= part_.begin && group.observed < part_.end;
    if (!wanted && !first && part_.items) {
      // What others get need not be made here; where the stream ends is known.
      const int64_t to = group.observed < part_.begin ? part_.begin : part_.size;
      const int64_t count = std::min(to - group.observed, *part_.items - read_);
      if (count > 0) {
        reader_->skip(count);
        read_ += count;
        group.observed += count;
        continue;
      }
    }
    auto item = take();
    if (!item) break;
    ++group.observed;
    if (wanted) group.items.push_back(*item);
    if (first && !part_.drop_last) first_.push_back(std::move(*item));
  }
  if (part_.drop_last && group.observed < part_.size) group = {};
}

const ItemGroups::Group* ItemGroups::current() {
  if (!current_full_) fill(current_);
  current_full_ = true;
  if (current_.observed == 0) return nullptr;
  if (!next_full_) fill(next_);
  next_full_ = true;
  return &current_;
}

void ItemGroups::advance() {
  current_ = std::exchange(next_, {});
  next_full_ = false;
}

const std::vector<c10::IValue>& ItemGroups::first() {
  if (first_known_) return first_;
  const auto reader = open_();
  std::vector<c10::IValue> items;
  while (static_cast<int64_t>(items.size()) < part_.size)
    if (auto item = reader->next())
      items.push_back(std::move(*item));
    else
      break;
  first_ = std::move(items);
  first_known_ = true;
  return first_;
}

}  // namespace accel::data
