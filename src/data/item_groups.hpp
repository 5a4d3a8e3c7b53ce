// The items of a stream in groups of one size, read one group ahead so that the last one is known as such.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/stream.hpp"

namespace accel::data {

class ItemGroups {
 public:
  using Open = std::function<std::unique_ptr<StreamReader>()>;
  struct Part {
    int64_t size = 1;              // items of a group
    int64_t begin = 0, end = 1;    // of those, what is needed; all of the first group is
    bool drop_last = false;        // a short last group is left out
    int64_t done = 0;              // items of the epoch that are not read again
    std::optional<int64_t> items;  // those of the epoch, where that is known
  };
  struct Group {
    std::vector<c10::IValue> items;  // of the part
    int64_t observed = 0;            // items that there were in the whole group
  };

  // `open` reads the epoch from its start.
  ItemGroups(Open open, const Part& part);

  // The group that is next, and how many items the one behind it has; null at the end. After an error both go on where
  // they stood.
  const Group* current();
  int64_t observed_next() const { return next_.observed; }
  void advance();
  // The first group of the epoch in full, which fills up what is short.
  const std::vector<c10::IValue>& first();

 private:
  std::optional<c10::IValue> take();
  void fill(Group& group);

  Open open_;
  Part part_;
  std::unique_ptr<StreamReader> reader_;
  std::vector<c10::IValue> first_;
  bool first_known_;
  int64_t read_ = 0;  // items of this reader
  bool ended_ = false;
  Group current_, next_;
  bool current_full_ = false, next_full_ = false;
};

}  // namespace accel::data
