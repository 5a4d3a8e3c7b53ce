// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/encoded_tensors.hpp"

#include "nn/layers/embedding.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {

const EncodedWeight* encoded_weight(const Module& module) {
  if (const auto* const projection = dynamic_cast<const Projection*>(&module)) return projection->encoded();
  if (const auto* const embedding = dynamic_cast<const Embedding*>(&module)) return embedding->encoded();
  return nullptr;
}

std::unordered_set<const at::TensorImpl*> encoded_tensors(const Module& root) {
  std::unordered_set<const at::TensorImpl*> found;
  for (const auto& [path, module] : named_modules(root)) {
    if (encoded_weight(*module) == nullptr) continue;
    found.insert(module->parameter(Projection::kWeight).unsafeGetTensorImpl());
    for (const Module::Buffer& buffer : module->direct_buffers()) found.insert(buffer.tensor.unsafeGetTensorImpl());
  }
  return found;
}

}  // namespace accel::nn
