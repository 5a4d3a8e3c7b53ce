// SPDX-License-Identifier: Apache-2.0
// Sequence keys: which tensors of a batch have positions that the ranks along the axis context share.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parallel/sequence_split.hpp"

namespace accel::accelerator {

class SequenceKeys {
 public:
  // Reads sequence_keys of accel_dataloader_config_t: "input_ids, mask:2". Throws kInvalidArgument for others.
  explicit SequenceKeys(const std::string& text);

  bool empty() const { return dims_.empty(); }
  // The batch with this rank's part of each. Throws kNotFound for a key that the batch has not.
  c10::IValue part_of(const c10::IValue& batch, const parallel::SequenceSplit& split) const;

 private:
  std::vector<std::pair<std::string, int64_t>> dims_;
};

}  // namespace accel::accelerator
