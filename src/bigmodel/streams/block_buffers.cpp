// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/block_buffers.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

namespace accel::bigmodel {

std::optional<SpareBuffer> BlockBuffers::take(int64_t bytes) {
  auto best = spares_.end();
  for (auto spare = spares_.begin(); spare != spares_.end(); ++spare)
    if (spare->buffer.numel() >= bytes && (best == spares_.end() || spare->buffer.numel() < best->buffer.numel()))
      best = spare;
  std::optional<SpareBuffer> taken;
  if (best == spares_.end()) {
    for (const SpareBuffer& spare : spares_) bytes_ -= spare.buffer.numel();
    spares_.clear();
    bytes_ += bytes;
  } else {
    taken = std::move(*best);
    spares_.erase(best);
  }
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return taken;
}

void BlockBuffers::put_away(const std::shared_ptr<FilledBuffer>& filled) {
  filled->tensors.clear();
  if (filled.use_count() == 1 && filled->buffer.storage().use_count() == 1)
    spares_.push_back({std::move(filled->buffer), std::move(filled->ready)});
  else
    bytes_ -= filled->buffer.numel();
}

}  // namespace accel::bigmodel
