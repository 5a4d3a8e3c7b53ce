// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/block_collective.hpp"

namespace accel::comm::ucx {

Outgoing block_for(const Collective& collective, int peer) {
  const auto& header = collective.header;
  if (!traits_of(header.kind).combines_whole()) return collective.outgoing[static_cast<size_t>(peer)];
  return header.root < 0 || header.root == peer ? collective.outgoing[0] : Outgoing{};
}

void begin_partial(const Collective& collective, const Incoming& result, const char* tensor) {
  if (collective.reduce.function == collective.combine.function) return copy_block(result, tensor);
  const void* const inputs[] = {tensor};
  collective.reduce(result.data, inputs, 1, static_cast<int64_t>(result.bytes / collective.element_size));
}

}  // namespace accel::comm::ucx
