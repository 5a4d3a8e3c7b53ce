// SPDX-License-Identifier: Apache-2.0
// The map-style dataset of an iterable dataset's handle: reading it is an error that says why.
#pragma once

#include "data/dataset.hpp"

namespace accel::data {

class NoItems final : public Dataset {
 public:
  int64_t length() const override;

 protected:
  c10::IValue read_item(int64_t index) const override;
};

}  // namespace accel::data
