// SPDX-License-Identifier: Apache-2.0
#include "nn/operators.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>

#include "nn/linear_cross_entropy.hpp"
#include "nn/low_precision/fp8_linear.hpp"
#include "nn/quantized/quantized_linear.hpp"
#include "nn/split/expert_ranks.hpp"
#include "nn/split/split_linear.hpp"

namespace accel::nn {
namespace {

// Never destroyed: operators may be called while the process ends.
const torch::Library* make_library() {
  // Another copy of the engine in the same process may have been first.
  if (c10::Dispatcher::singleton().findSchema({"accel::linear_cross_entropy", ""})) return nullptr;
  auto library = std::make_unique<torch::Library>(torch::Library::FRAGMENT, "accel", std::nullopt, __FILE__, __LINE__);
  // Without a dispatch key: the functions differentiate and cast by themselves, on every device.
  library->def(kLinearCrossEntropySchema, linear_cross_entropy);
  library->def(kFp8LinearSchema, fp8_linear);
  library->def(kQuantizeMatrixSchema, quantize_named_matrix);
  library->def(kQuantizedScalesSchema, quantized_scales);
  library->def(kQuantizedLinearSchema, quantized_linear);
  library->def(kSplitLinearSchema, split_linear);
  library->def(kDispatchTokensSchema, dispatch_tokens);
  library->def(kCombineTokensSchema, combine_tokens);
  return library.release();
}

}  // namespace

void register_operators() { [[maybe_unused]] static const torch::Library* const library = make_library(); }

}  // namespace accel::nn
