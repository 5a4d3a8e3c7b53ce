// Where items come from. Datasets are read from several threads at once:
// reading changes nothing.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace accel::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t length() const = 0;

  // Indices are checked here, so that implementations need not.
  c10::IValue item(int64_t index) const;
  // The items stacked leaf by leaf.
  c10::IValue batch(c10::IntArrayRef indices) const;

 protected:
  virtual c10::IValue read_item(int64_t index) const = 0;
  virtual c10::IValue read_batch(c10::IntArrayRef indices) const = 0;
};

}  // namespace accel::data
