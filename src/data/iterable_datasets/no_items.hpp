// What stands where a stream has no items by number: to ask for one is an error that says so.
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
