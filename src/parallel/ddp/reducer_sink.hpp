// SPDX-License-Identifier: Apache-2.0
// A node in the autograd graph after the model's outputs, which runs first in backward.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>

namespace accel::parallel {

class Reducer;

// [Note: the sink behind the outputs] Two uses of DDP need to act when backward enters the model. A static graph's
// first backward must wait with every all-reduce until the end, since only then is it known which parameters take part
// and how often. And with unused parameters, outputs that do not reach the loss must pass on an undefined gradient, not
// zeros, so that the Reducer sees their parameters as unused. Passes every tensor of `output` that has a gradient
// history through such a node.
c10::IValue pass_through_sink(const c10::IValue& output, const std::shared_ptr<Reducer>& reducer,
                              bool delay_all_reduce);

}  // namespace accel::parallel
