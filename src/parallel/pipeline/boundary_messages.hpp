// SPDX-License-Identifier: Apache-2.0
// Boundary messages: into which messages the values are put that pass from one stage of a pipeline to another.
//
// Note: the messages of a value. A receiver posts memory ahead for a value like the latest that it has taken, and its
// sender counts along, so it knows for what. A value that is described so is its tensors and nothing else. Otherwise an
// announcement takes the place of the first tensor, and messages of no bytes that of the others. It has 8 bytes: 0 if
// the value is described as the last one between these stages, the size of a new description, which follows, or -1 if
// the sender failed and no value comes. Its tensors follow. So lengths and numbers may change from one micro-batch to
// the next. Memory is not posted for many or large tensors, next to which an announcement costs nothing, nor where the
// backend cannot receive less than it has memory for: these values are all announced.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "parallel/pipeline/boundary_value.hpp"
#include "parallel/pipeline/split_boundary.hpp"

namespace accel::parallel {

// The messages of a value are numbered: these, tensors for which memory is posted ahead, tensors that were announced.
enum BoundarySlot : size_t { kAnnouncement, kDescription, kFirstTensor };
constexpr size_t kBoundarySlots = 1024;
// Announcements that are not the size of a description.
constexpr int64_t kAsBefore = 0, kSenderFailed = -1;

// The tensors for which a receiver posts memory ahead, of a value whose tensors have these bytes: all, or none.
size_t count_foreseen(at::IntArrayRef bytes);

struct BoundaryMessage {
  size_t slot;
  at::Tensor tensor;
};
using BoundaryMessages = std::vector<BoundaryMessage>;

// The values from one stage to another, in their order.
class SentValues {
 public:
  // The receiver posts memory for as many values ahead, if that is more than 0. As many `ranks` send parts of them.
  SentValues(size_t posted_ahead, const BoundaryForm& form, int64_t ranks)
      : posted_ahead_(posted_ahead), form_(form), ranks_(ranks) {
    begin_step();
  }

  void begin_step() { foreseen_.assign(posted_ahead_, latest_); }
  // Throws UNSUPPORTED for too many tensors; then it is not a value yet.
  BoundaryMessages put(const c10::IValue& value);
  BoundaryMessages put_failure();

 private:
  // Values that are described alike.
  struct Described {
    int64_t version = 0;
    size_t foreseen_tensors = 0;
  };

  // Tells how the value was described for which memory is posted now; `latest_` counts from now on.
  Described next_foreseen();
  static BoundaryMessages announce(int64_t announcement, const Described& foreseen);

  const size_t posted_ahead_;
  const BoundaryForm& form_;
  const int64_t ranks_;
  std::string outline_, description_;  // of the latest value
  Described latest_;
  std::deque<Described> foreseen_;  // by the receiver, the next value first
};

}  // namespace accel::parallel
