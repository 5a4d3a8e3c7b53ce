// What the ranks compute of their batches, joined for a metric. @accelerate gather_for_metrics
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

#include "comm/communicator.hpp"

namespace accel::accelerator {

// Tensors are joined; a tree with other leaves is gathered as an object. Only the first `rows` stay, 0 for all.
c10::IValue gather_for_metrics(comm::Communicator& communicator, const c10::IValue& value, int64_t rows);

}  // namespace accel::accelerator
