// SPDX-License-Identifier: Apache-2.0
// Tree broadcast: each rank forwards chunks to its children.
#pragma once

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

// From the session's rank `root` to all of its ranks. On the others `block` is inside `target`.
void broadcast_along_tree(const Outgoing& block, const Incoming& target, int root, Session& session);

}  // namespace accel::comm::ucx
