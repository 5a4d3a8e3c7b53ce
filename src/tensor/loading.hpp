// SPDX-License-Identifier: Apache-2.0
// Loading from mapped files into objects that exist, without a second copy of them in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace accel::tensor {

// During its lifetime this thread loads tensors of files that nobody else has: their pages are released once they are
// read, and what the loading object has is filled instead of replaced.
class LoadingScope {
 public:
  LoadingScope();
  LoadingScope(const LoadingScope&) = delete;
  LoadingScope& operator=(const LoadingScope&) = delete;
  ~LoadingScope();

 private:
  bool before_;
};

bool is_loading();

using LoadedCopies = std::vector<std::pair<at::Tensor, at::Tensor>>;  // to and from
// Does to.copy_(from) for each pair.
void copy_loaded(const LoadedCopies& copies);
// Returns tensor.item<double>().
double loaded_number(const at::Tensor& tensor);

}  // namespace accel::tensor
