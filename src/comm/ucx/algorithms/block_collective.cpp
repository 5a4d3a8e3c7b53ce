#include "comm/ucx/algorithms/block_collective.hpp"

namespace accel::comm::ucx {

bool combines_whole(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce;
}

Outgoing block_for(const Collective& collective, int peer) {
  const auto& header = collective.header;
  if (!combines_whole(header.operation)) return collective.outgoing[static_cast<size_t>(peer)];
  return header.root < 0 || header.root == peer ? collective.outgoing[0] : Outgoing{};
}

void begin_partial(const Collective& collective, const Incoming& result, const char* tensor) {
  if (collective.reduce.function == collective.combine.function) return copy_block(result, tensor);
  const void* const inputs[] = {tensor};
  collective.reduce(result.data, inputs, 1, static_cast<int64_t>(result.bytes / collective.element_size));
}

}  // namespace accel::comm::ucx
