// SPDX-License-Identifier: Apache-2.0
// Gather parts: the tensors that this rank sends when the parameters of a group are gathered.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/fp8_gather.hpp"
#include "parallel/fsdp/gather/fp8_weight.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

// A tensor that is exchanged for a parameter: its rows, in the dtype of whole ones or in 8 bits, or the scales of
// these.
struct GatherPart {
  size_t parameter;
  int64_t elements_per_rank;
  at::ScalarType dtype;
  const Fp8Weight* fp8;  // of 8 bits, and of scales
  bool is_scales;
};

class GatherParts {
 public:
  // The arguments are those of ParameterGather.
  GatherParts(const std::vector<std::unique_ptr<ShardedParameter>>& parameters, const ModelRanks& ranks,
              const Fp8GatherPtr& fp8);

  void set_device(c10::Device device, bool on_host);
  c10::Device device() const { return device_; }
  bool on_host() const { return on_host_; }
  std::vector<Fp8Weight*> fp8_weights() const;
  // Whether parameters are gathered in another way after set_training().
  bool change_with(bool is_training) const;
  void set_training(bool is_training);

  // In the order of the parameters; scales follow their rows.
  const std::vector<GatherPart>& list() const { return parts_; }
  // The elements that all ranks send together.
  int64_t padded_elements(const GatherPart& part) const;

  // Shards may have other values than when they were sent last.
  void note_update() { is_updated_ = true; }
  // Copies what has changed. One tensor of each part, the shard itself or a copy.
  const std::vector<at::Tensor>& update();
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // Gives the memory of copies back.
  void drop();

 private:
  std::vector<GatherPart> make_list() const;
  const Fp8Weight* any_fp8_weight() const;
  bool is_copied(const GatherPart& part) const;
  void make_tensors();

  const std::vector<std::unique_ptr<ShardedParameter>>& parameters_;
  const ModelRanks& ranks_;
  std::vector<std::unique_ptr<Fp8Weight>> fp8_weights_;  // of each parameter; null: it is never gathered in 8 bits
  bool uses_fp8_ = true;                                 // for these
  std::vector<GatherPart> parts_;
  c10::Device device_ = at::kCPU;
  bool on_host_ = false;  // shards, of a model on another device
  std::vector<at::Tensor> tensors_;
  bool is_updated_ = true;  // since the copies were made
};

}  // namespace accel::parallel
