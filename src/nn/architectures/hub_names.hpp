// SPDX-License-Identifier: Apache-2.0
// Hub names: what files of models on the hub call weights that a module has under other names, or several of them in
// one parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/expert_files.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// A tensor of a file, which is these rows of a matrix of the parameter, or all of it.
struct HubPart {
  std::string name;
  int64_t expert = -1;  // the index of the matrix; -1: the tensor is the whole parameter
  int64_t begin = 0, rows = 0;

  // A view.
  at::Tensor of(const at::Tensor& whole) const;
};

// A module some of whose children have other names in files.
class RenamedChildren {
 public:
  virtual ~RenamedChildren() = default;
  // Pairs of a child's name and that in files.
  virtual std::vector<std::pair<std::string, std::string>> hub_children() const = 0;
};

// A module with parameters [1] that files have without a dimension, because such a parameter cannot be sharded.
class SingleNumbers {
 public:
  virtual ~SingleNumbers() = default;
  virtual std::vector<std::string> single_numbers() const = 0;
};

// The names of such children and numbers, and of mixtures of experts, as their settings give them.
class HubNames {
 public:
  explicit HubNames(const Module& model);

  // Returns the tensors of files that are a parameter or buffer; empty: files have it under its own name. `sizes`: of
  // the whole parameter.
  std::vector<HubPart> parts_of(const std::string& name, at::IntArrayRef sizes) const;
  // A state dict as files have it; its tensors are views.
  NamedTensors to_files(const NamedTensors& state) const;

 private:
  std::vector<HubPart> parts_of_path(const std::string& name, at::IntArrayRef sizes) const;

  std::map<std::string, std::string> members_;                 // of encoded weights, and in files before other rules
  std::vector<std::pair<std::string, ExpertFiles>> mixtures_;  // by the last part of their path
  std::vector<std::pair<std::string, std::string>> paths_;     // of modules, and in files
  std::set<std::string> numbers_;                              // by their paths
};

// The parameter whose parts these are, in their order, in memory of its own. Throws SHAPE_MISMATCH if they do not fit
// `sizes`.
at::Tensor join_hub_parts(const std::vector<HubPart>& parts, const std::vector<at::Tensor>& tensors,
                          at::IntArrayRef sizes);
// Throws as join_hub_parts() does.
void check_hub_parts(const std::vector<HubPart>& parts, const std::vector<at::Tensor>& tensors, at::IntArrayRef sizes);

}  // namespace accel::nn
