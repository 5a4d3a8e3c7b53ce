// Encoded weights: matrices that layers have as codes, with buffers beside them that say what the codes mean. The
// parameter "weight" of such a layer is the codes, which are not trained.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "nn/layers/embedding.hpp"
#include "nn/layers/projection.hpp"

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

class EncodedProduct : public WeightProduct, public virtual EncodedWeight {};
class EncodedLookup : public RowLookup, public virtual EncodedWeight {};

// The encoded weight of a projection or an embedding; null: it is none, or has an ordinary one.
const EncodedWeight* encoded_weight(const Module& module);

// The codes and buffers of all encoded weights, which are not converted to other dtypes.
std::unordered_set<const at::TensorImpl*> encoded_tensors(const Module& root);

}  // namespace accel::nn
