// SPDX-License-Identifier: Apache-2.0
// Places a model whose layers run one after the other so that the fewest bytes are off the accelerators.
#pragma once

#include <cstdint>
#include <vector>

#include "bigmodel/device_map/block_placement.hpp"

namespace accel::bigmodel {

// A link of the chain stays together: a layer, or layers that are tied, at the place of the first of them.
struct Link {
  std::vector<int32_t> nodes;
  double size = 0;
};

std::vector<Link> chain_of(const ModuleTree& tree);

// Each accelerator gets one run of neighbours, in the order of the devices; links outside of the runs are offloaded.
// The bytes that are offloaded are the fewest that the limits allow; among the packings with as few, the number of
// places in the chain where the device changes is the least. If anything is offloaded, the first accelerator keeps room
// for the largest offloaded link. Offloaded links fill the host in their order; if it cannot hold them all, it keeps
// the same room, and the disk has the others. Without accelerators the host is filled, and the disk is what is
// offloaded to.
//
// [Note: longest runs suffice] A device whose run begins at a link may take all that fit: moving the first link behind
// the run into it adds neither offloaded bytes nor a change. So for a given bound of the offloaded links, the best
// packing from a link and a device on follows from those behind it: the longest run, a link that is offloaded, or a
// device that stays empty. The bounds that can matter are the sizes of the links; all are tried.
Placement pack_chain(const ModuleTree& tree, const std::vector<Tier>& tiers);

}  // namespace accel::bigmodel
