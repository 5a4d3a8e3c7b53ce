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
  // All arguments but the name, which is for errors, are the group's and are not copied.
  ParameterGather(std::string module, const std::vector<std::unique_ptr<ShardedParameter>>& parameters,
                  const FsdpSettings& settings, const ModelRanks& ranks);

  // Whole parameters will be on `device`; shards are there or, with `on_host`, on the CPU.
  void set_device(c10::Device device, bool on_host);
  c10::Device device() const { return device_; }

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
  void note_update() { is_updated_ = true; }
  bool has_storage(const c10::StorageImpl* storage) const;

 private:
  bool is_copied(const ShardLayout& layout) const;
  void make_sent_shards();
  void check_data() const;
  void update_sent_shards();
  void gather(const std::vector<at::Tensor>& sent, comm::Communicator& ranks);

  std::string module_;
  const std::vector<std::unique_ptr<ShardedParameter>>& parameters_;
  const FsdpSettings& settings_;
  const ModelRanks& ranks_;
  c10::Device device_ = at::kCPU;
  bool on_host_ = false;                 // shards, of a model on another device
  std::vector<at::Tensor> sent_shards_;  // of each parameter, as it is gathered: the shard itself or a copy
  bool is_updated_ = true;               // since the copies were made
  std::vector<at::Tensor> kept_parts_;   // of each parameter, from reshard_for_backward() on: the part of this rank
  int64_t whole_bytes_ = 0;              // of all parameters
  std::vector<at::Tensor> whole_;        // of each parameter with padding, while it is whole or on its way
  std::shared_ptr<comm::Work> gathering_;
  bool unsharded_ = false;
};

}  // namespace accel::parallel
