// Turns the gradients that a backward leaves into their means over the ranks while it still runs. With the rules of
// torch's: buckets take the order in which gradients came first, parameters may go unused where the settings say so,
// and a static graph is learnt in its first backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "config/generated/settings.hpp"
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
  // Of these parameters, which have names for errors. `order`: none to begin by size, the last parameters first.
  Reducer(const nn::NamedTensors& parameters, const DdpSettings& settings, CommunicatorPtr communicator,
          CommHookPtr hook, const BucketOrder& order = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // What makes means of buckets, from the next backward on.
  void set_hook(CommHookPtr hook) { hook_ = std::move(hook); }
  BucketOrder order() const { return buffer_.order(); }

  // Before a forward that is recorded. Throws an error after a backward that did not exchange all buckets: with the
  // names of the parameters that it gave no gradient, or with the error in which it ended. Once, and collective, the
  // buckets are made again in the order in which gradients came.
  void prepare_for_forward();
  // The next backward is exchanged. `outputs` are the model's, to search for parameters that it does not reach.
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);
  // The end of the first backward of a static graph, in which nothing was exchanged yet.
  void reduce_static_graph();
  // The error of a backward, for the next forward.
  void note_failed_backward(const std::string& error) { error_ = error; }
  // Takes part in one backward of the other ranks, with gradients of 0.
  void shadow_backward();

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  struct Accumulators;  // autograd's nodes of the parameters, with a hook of ours each

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
  // Which parameters take part on this rank, summed over all.
  void start_use_counts();
  bool is_used_anywhere(size_t number);

  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  DdpSettings settings_;
  CommunicatorPtr communicator_;
  CommHookPtr hook_;
  std::unique_ptr<Accumulators> accumulators_;
  std::mutex mutex_;
  GradientBuffer buffer_;
  std::vector<Future> exchanged_;  // of each bucket

  bool expects_gradients_ = false;  // the backward is exchanged
  bool under_way_ = false;          // the exchange has begun and not ended
  bool in_backward_ = false;        // autograd's backward has come to a parameter and not ended, or failed
  std::string error_;               // of the latest backward that failed
  bool failed_ = false;
  std::vector<size_t> arrived_;  // in the order in which gradients came first
  bool order_taken_ = false;
  std::vector<size_t> unused_;  // parameters that the backward does not reach
  bool unused_marked_ = false;
  // How often a static graph's backward comes to each parameter; and what is left of that in this one.
  std::vector<int64_t> visits_, visits_left_;
  bool static_graph_known_ = false;
  std::vector<int32_t> used_;  // on this rank: 1
  at::Tensor use_counts_;      // over all ranks
  c10::intrusive_ptr<c10d::Work> counting_;
};

}  // namespace accel::parallel
