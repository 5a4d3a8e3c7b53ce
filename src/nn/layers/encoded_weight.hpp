// SPDX-License-Identifier: Apache-2.0
// Encoded weight: a matrix that a layer has as codes, with buffers beside them that say what the codes mean. The
// parameter "weight" of such a layer is the codes, which are not trained.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace accel::nn {

class EncodedWeight {
 public:
  virtual ~EncodedWeight() = default;

  virtual at::IntArrayRef sizes() const = 0;  // of the matrix that the codes are, [rows, columns]
  // The matrix, decoded.
  virtual at::Tensor values(at::ScalarType dtype) const = 0;
  // The names of the layer's members that files have under other names, with those.
  virtual std::vector<std::pair<std::string, std::string>> file_names() const = 0;
};

}  // namespace accel::nn
