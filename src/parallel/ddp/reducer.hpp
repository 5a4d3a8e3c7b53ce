// Reducer: averages gradients over the ranks while backward runs, as torch's: buckets are rebuilt in the order in which
// gradients first arrived, unused parameters are allowed if configured, and a static graph is recorded in its first
// backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "config/generated/settings/prepare.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_buffer.hpp"
#include "parallel/parallel_model.hpp"

namespace c10d {
class GradBucket;
class Work;
}  // namespace c10d

namespace accel::parallel {

class Reducer {
 public:
  // For these parameters; their names are for errors. Without `order`, buckets begin with the last parameters.
  Reducer(const nn::NamedTensors& parameters, const DdpSettings& settings, CommunicatorPtr communicator,
          CommHookPtr hook, const BucketOrder& order = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Sets the hook that averages buckets, from the next backward on.
  void set_hook(CommHookPtr hook) { hook_ = std::move(hook); }
  const BucketOrder& order() const { return order_; }

  // Before a forward that is recorded. Throws an error after a backward that did not exchange all buckets: with the
  // names of the parameters that got no gradient, or with the error in which it ended. Rebuilds the
  // buckets once, collectively, in the order in which gradients arrived.
  void prepare_for_forward();
  // Exchanges the next backward. `outputs` are the model's, to find parameters that it does not reach.
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);
  // At the end of the first backward of a static graph, in which nothing was exchanged yet.
  void reduce_static_graph();
  // The error of a backward, for the next forward.
  void note_failed_backward(const std::string& error) { error_ = error; }
  // Takes part in one backward of the other ranks, with zero gradients.
  void shadow_backward();

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  struct Accumulators;  // the parameters' AccumulateGrad nodes, with our hooks

  bool learns_static_graph() const { return settings_.static_graph && !static_graph_known_; }
  bool searches_unused() const { return settings_.find_unused_parameters && !settings_.static_graph; }
  bool takes_order() const { return !order_taken_ && !searches_unused(); }

  void make_buffer(const BucketOrder& order);
  BucketOrder order_of_rank_0(const BucketOrder& own) const;
  [[noreturn]] void fail_with_missing_gradients() const;
  [[noreturn]] void fail_with_failed_backward() const;
  // In backward, on any of autograd's threads.
  void gradient_arrived(size_t number);
  void mark_ready(size_t number);
  void copy_to_bucket(size_t number);
  c10d::GradBucket grad_bucket(size_t index, at::Tensor memory) const;
  void start_bucket(size_t index);
  void finish();
  void copy_from_bucket(size_t number);
  // Sums over the ranks which parameters took part.
  void start_use_counts();
  bool is_used_anywhere(size_t number);

  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  DdpSettings settings_;
  CommunicatorPtr communicator_;
  CommHookPtr hook_;
  std::unique_ptr<Accumulators> accumulators_;
  std::mutex mutex_;
  BucketOrder order_;
  GradientBuffer buffer_;          // in this order
  std::vector<Future> exchanged_;  // of each bucket

  bool expects_gradients_ = false;  // the backward is exchanged
  bool under_way_ = false;          // the exchange has begun and not ended
  bool in_backward_ = false;        // autograd's backward has come to a parameter and not ended, or failed
  std::string error_;               // of the latest backward that failed
  bool failed_ = false;
  std::vector<size_t> arrived_;  // in the order in which gradients first arrived
  bool order_taken_ = false;
  std::vector<size_t> unused_;  // parameters that the backward does not reach
  bool unused_marked_ = false;
  // How often a static graph's backward reaches each parameter, and how often it still will in this one.
  std::vector<int64_t> visits_, visits_left_;
  bool static_graph_known_ = false;
  std::vector<int32_t> used_;  // on this rank: 1
  at::Tensor use_counts_;      // over all ranks
  c10::intrusive_ptr<c10d::Work> counting_;
};

}  // namespace accel::parallel
