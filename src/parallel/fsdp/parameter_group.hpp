// Parameter group: the parameters of one wrapped module, which are gathered together and whose gradients are reduced
// together, each by one call of coalesced collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/work.hpp"
#include "nn/module.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

// How shards are stored and used; dtypes without a value are the parameters' own.
struct ShardOptions {
  std::optional<at::ScalarType> param_dtype;   // of whole parameters
  std::optional<at::ScalarType> reduce_dtype;  // in which gradients are summed; else that of whole parameters
  bool cpu_offload = false;                    // shards, their gradients and so the optimizer are on the host
  bool offload_optimizer = false;  // the same, and a copy of the shards stays on the device for the ranks to gather
  std::string offload_folder;      // in files of it are shards of cpu_offload, and gradients of offload_optimizer
};

// The bytes that a parameter, or its shard, takes in the memory of its group.
int64_t aligned_shard_bytes(int64_t elements, at::ScalarType dtype);

class ParameterGroup {
 public:
  // `name` is that of the module, for errors.
  ParameterGroup(std::string name, const nn::NamedTensors& parameters, const ShardOptions& options,
                 const ModelRanks& ranks);
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<ShardedParameter>>& parameters() const { return parameters_; }
  c10::Device device() const { return device_; }  // of whole parameters
  bool is_trained() const { return num_trained_ > 0; }
  bool has_frozen() const { return num_trained_ < parameters_.size(); }  // since the latest backward began

  // Collective: `whole` returns parameter i on `device`, the same on all ranks; afterwards its data is the shard.
  void shard(c10::Device device, const std::function<at::Tensor(size_t index)>& whole);

  // Collectives among the shard ranks. Starts to gather the parameters, unless they are whole or on their way.
  void start_unshard();
  void unshard();
  bool is_unsharded() const { return unsharded_; }
  // A gather that is under way arrives first.
  void reshard();
  // Reshards after a forward: the ranks of ModelRanks::reshard keep the parameters among them for the backward.
  void reshard_for_backward();
  // Shards may have other values than when they were gathered last.
  void note_update() { is_updated_ = true; }
  bool has_storage(const c10::StorageImpl* storage) const;

  // A backward. Gradients of shards are put aside until its end.
  void begin_backward();
  bool in_backward() const { return in_backward_; }
  void watch_gradients(const std::function<void(size_t index)>& arrived);
  // True if it was the last one.
  bool gradient_arrived(size_t index);
  bool all_arrived() const { return num_arrived_ == num_trained_; }
  bool has_arrived(size_t index) const { return arrived_[index]; }
  // Starts to reduce the gradients that arrived, their mean over all ranks times `factor`.
  void start_reduce(double factor = 1);
  const std::shared_ptr<comm::Work>& reducing() const { return reducing_; }
  // Waits, and ends the backward.
  void finish_reduce();
  // Ends the backward without the other ranks: the gradients of whole parameters are kept for the next one.
  void keep_gradients();
  bool has_kept_gradients() const;

 private:
  struct Reduced {
    ShardedParameter* parameter;
    at::Tensor whole;  // what is sent, until it is
    at::Tensor shard;  // with padding
  };

  at::ScalarType reduce_dtype(const ShardedParameter& parameter) const;
  bool is_copied(const ShardedParameter& parameter) const;
  void make_sent_shards();
  void check_data() const;
  void update_sent_shards();

  std::string name_;
  ShardOptions options_;
  ModelRanks ranks_;
  std::vector<std::unique_ptr<ShardedParameter>> parameters_;
  size_t num_trained_ = 0;

  c10::Device device_ = at::kCPU;
  bool on_host_ = false;                 // shards, of a model on another device
  std::vector<at::Tensor> sent_shards_;  // of each parameter, as it is gathered: the shard itself or a copy
  bool is_updated_ = true;               // since the copies were made
  std::vector<at::Tensor> kept_parts_;   // of each parameter, from reshard_for_backward() on: the part of this rank
  int64_t whole_bytes_ = 0;              // of all parameters, each at a cache line
  std::vector<at::Tensor> whole_;        // of each parameter with padding, while it is whole or on its way
  std::shared_ptr<comm::Work> gathering_;
  bool unsharded_ = false;

  bool in_backward_ = false;
  std::vector<bool> arrived_;
  size_t num_arrived_ = 0;
  std::vector<Reduced> reduced_;
  double factor_ = 1;
  std::shared_ptr<comm::Work> reducing_;
};

}  // namespace accel::parallel
