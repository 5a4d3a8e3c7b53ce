// SPDX-License-Identifier: Apache-2.0
#include "data/iterable_datasets/no_items.hpp"

#include "base/error.hpp"

namespace accel::data {
namespace {

[[noreturn]] void refuse() {
  fail(Status::kUnsupported, "the dataset is iterable; expected a map-style dataset, or a loader over it");
}

}  // namespace

int64_t NoItems::length() const { refuse(); }

c10::IValue NoItems::read_item(int64_t) const { refuse(); }

}  // namespace accel::data
