// Sizes of modules in bytes, as estimates of the reference count them: truth values are bits.
#pragma once

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

struct MaximumSizes {
  double total = 0;                        // of all parameters and buffers, tied ones once
  double largest = 0;                      // of a module without children, or a parameter or buffer of the model itself
  std::vector<std::string> largest_names;  // all of this size
};

// @accelerate calculate_maximum_sizes
MaximumSizes calculate_maximum_sizes(const Module& module);

}  // namespace accel::nn
