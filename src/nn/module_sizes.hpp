// SPDX-License-Identifier: Apache-2.0
// Sizes of modules in bytes, as estimates of Accelerate count them: truth values are bits, tied parameters count
// once.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

// The dtypes in which tensors are counted. Names of dtypes as in tensor::dtype_byte_size().
class SizeRules {
 public:
  // In the dtypes that they have.
  SizeRules() = default;
  // Floating tensors in `dtype` if that is smaller than their own; empty: in their own. `special_dtypes`: names of
  // tensors with the dtypes that they are counted in, whatever their own is.
  SizeRules(const std::string& dtype, const std::vector<std::pair<std::string, std::string>>& special_dtypes);

  double bytes_of(const at::Tensor& tensor) const;
  bool has_special() const { return !special_.empty(); }
  // The size of the tensor with this name in the model.
  double bytes_of(const std::string& name, const at::Tensor& tensor) const;

 private:
  double largest_float_ = 0;  // bytes; 0: any
  std::unordered_map<std::string, double> special_;
};

using ModuleSizes = std::vector<std::pair<std::string, double>>;

// The sizes of the model, "", of each module in it and of each tensor, in the order in which tensors are visited:
// parameters, then buffers. A tied parameter is listed under its first name only.
// @accelerate compute_module_sizes
ModuleSizes compute_module_sizes(const Module& model, const SizeRules& rules = {}, bool buffers_only = false);

// The names in sizes that have nothing below them, without "".
// @accelerate get_module_leaves
std::vector<std::string> module_leaves(const ModuleSizes& sizes);

struct LargestLayer {
  double bytes = 0;
  std::vector<std::string> names;  // all of this size
};

// A layer is a module without children, one whose class is in `no_split_classes`, or a parameter or buffer of the model
// itself.
// @accelerate get_max_layer_size
LargestLayer largest_layer(const Module& model, const ModuleSizes& sizes,
                           const std::vector<std::string>& no_split_classes = {});

struct MaximumSizes {
  double total = 0;  // of all parameters and buffers
  double largest = 0;
  std::vector<std::string> largest_names;
};

// @accelerate calculate_maximum_sizes
MaximumSizes calculate_maximum_sizes(const Module& module);

struct TensorSelection {
  bool include_buffers = true;
  bool recurse = false;  // of the modules below too
  bool remove_non_persistent = false;
};
// Parameters, then buffers, each once.
// @accelerate named_module_tensors
NamedTensors named_module_tensors(const Module& module, const TensorSelection& selection);

// Names of the buffers that are not saved.
// @accelerate get_non_persistent_buffers
std::vector<std::string> non_persistent_buffers(const Module& module, bool recurse);

}  // namespace accel::nn
