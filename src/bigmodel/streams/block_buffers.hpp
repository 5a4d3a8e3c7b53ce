// SPDX-License-Identifier: Apache-2.0
// Block buffers: the buffers that a stream of blocks has on its device. One that nothing holds any more is used again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bigmodel/streams/block_memory.hpp"

namespace accel::bigmodel {

class BlockBuffers {
 public:
  // The smallest spare buffer that is large enough. If there is none, the memory of all others is given back and the
  // caller allocates `bytes`, which count from now on.
  std::optional<SpareBuffer> take(int64_t bytes);
  // The caller has none after all of the size that it took.
  void lose(int64_t bytes) { bytes_ -= bytes; }
  // The buffer becomes a spare one, unless something else holds it, such as a graph.
  void put_away(const std::shared_ptr<FilledBuffer>& filled);
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  std::vector<SpareBuffer> spares_;
  int64_t bytes_ = 0;  // of spare and of taken buffers
  int64_t peak_bytes_ = 0;
};

}  // namespace accel::bigmodel
