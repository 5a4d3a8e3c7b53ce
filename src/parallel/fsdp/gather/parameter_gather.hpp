// SPDX-License-Identifier: Apache-2.0
// Parameter gather: makes the parameters of a group whole on all ranks, by one call of coalesced collectives, and gives
// the memory of whole ones back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/work.hpp"
#include "parallel/fp8_gather.hpp"
#include "parallel/fsdp/gather/gather_parts.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "parallel/parallel_model.hpp"

namespace accel {
struct FsdpSettings;
}

namespace accel::parallel {

// A rank sends one of these when parameters are gathered: its shards, or the parts that the ranks of
// ModelRanks::reshard keep.
enum class SentParts : uint8_t { kShards, kKept };

class ParameterGather {
 public:
  // All arguments but the name, which is for errors, and `fp8`, which may be null, are the group's and are not copied.
  ParameterGather(std::string module, const std::vector<std::unique_ptr<ShardedParameter>>& parameters,
                  const FsdpSettings& settings, const ModelRanks& ranks, const Fp8GatherPtr& fp8);

  // Whole parameters will be on `device`; shards are there or, with `on_host`, on the CPU.
  void set_device(c10::Device device, bool on_host) { parts_.set_device(device, on_host); }
  c10::Device device() const { return parts_.device(); }
  // The weights that are gathered in 8 bits.
  std::vector<Fp8Weight*> fp8_weights() const { return parts_.fp8_weights(); }
  // All ranks say the same. Parameters are released if they are gathered in another way from now on.
  void set_training(bool is_training);

  // Makes ready what start_unshard() sends; nothing, if the parameters are whole or on their way.
  std::optional<SentParts> prepare_unshard();
  // Collectives among the shard ranks. Starts to gather the parameters, unless they are whole or on their way.
  void start_unshard();
  void unshard();
  bool is_unsharded() const { return unsharded_; }
  // A gather that is under way arrives first.
  void reshard();
  // Reshards after a forward: the ranks of ModelRanks::reshard keep the parameters among them for the backward.
  void reshard_for_backward();
  // Takes part in a gather of other ranks, whose values this one has no use for.
  void gather_for_others(SentParts parts);
  // Shards may have other values than when they were gathered last.
  void note_update() { parts_.note_update(); }
  bool has_storage(const c10::StorageImpl* storage) const;

 private:
  void check_data() const;
  void gather(const std::vector<at::Tensor>& sent, comm::Communicator& ranks);
  void take_gathered();

  std::string module_;
  const std::vector<std::unique_ptr<ShardedParameter>>& parameters_;
  const FsdpSettings& settings_;
  const ModelRanks& ranks_;
  GatherParts parts_;
  std::vector<at::Tensor> kept_parts_;  // from reshard_for_backward() on: this rank's of what was gathered
  std::vector<at::Tensor> gathered_;  // with padding, on its way, and until reshard_for_backward() where that keeps it
  std::shared_ptr<comm::Work> gathering_;
  bool unsharded_ = false;
};

}  // namespace accel::parallel
