// SPDX-License-Identifier: Apache-2.0
// Reducer: averages gradients over the ranks while backward runs, as torch's: buckets are rebuilt in the order in which
// gradients first arrived, unused parameters are allowed if configured, and a static graph is recorded in its first
// backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "config/generated/settings/prepare/ddp.hpp"
#include "parallel/ddp/arrival_order.hpp"
#include "parallel/ddp/bucket_exchange.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/ddp/parameter_use.hpp"
#include "parallel/ddp/static_graph.hpp"
#include "parallel/ddp/uncovered_gradients.hpp"
#include "parallel/gradient_buffer.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/autograd/gradient_hook.hpp"

namespace accel::parallel {

class Reducer {
 public:
  // For these parameters, with the exchange of each of their classes; their names are for errors. `ranks` are those of
  // all classes. Without `order`, buckets begin with the last parameters.
  Reducer(const nn::NamedTensors& parameters, GradientClasses classes, const DdpSettings& settings,
          CommunicatorPtr ranks, std::vector<ClassExchange> exchanges, const BucketOrder& order = {});
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // The buckets. Another hook averages them from the next backward on.
  BucketExchange& exchange() { return exchange_; }

  // Before a forward that is recorded. Throws an error after a backward that did not exchange all buckets: with the
  // names of the parameters that got no gradient, or with the error in which it ended. Rebuilds the
  // buckets once, collectively, in the order in which gradients arrived.
  void prepare_for_forward();
  // Exchanges the next backward. `outputs` are the model's, to find parameters that it does not reach.
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);
  // Takes that back, unless gradients have come.
  void expect_no_backward();
  // From now on autograd comes to the parameters on the current stream, where a device may record a backward: it keeps
  // to the stream on which the hooks were made.
  void make_hooks();
  // At the end of the first backward of a static graph, in which nothing was exchanged yet.
  void reduce_static_graph();
  // Exchanges what has accumulated since the last exchange, or what a backward that failed has left of one; each
  // parameter has a gradient afterwards. Nothing if a backward since prepare_for_forward() has ended with its exchange.
  void exchange_accumulated();
  // The error of a backward, for the next forward. If all ranks know of it, they forget in which order gradients
  // arrived, which is another one on each.
  void note_failed_backward(const std::string& error, bool all_know = false) {
    error_ = error;
    if (all_know) arrivals_.forget();
  }
  // Takes part in one backward of the other ranks, with zero gradients.
  void shadow_backward();
  // The gradients that no exchange has covered.
  UncoveredGradients& uncovered() { return uncovered_; }

 private:
  // The state of the latest backward that was announced, as the gradients that arrived tell it.
  enum class State : uint8_t {
    kIdle,        // gradients are not exchanged
    kExpecting,   // those of the next backward are
    kReached,     // autograd's backward has come to a parameter, and no gradient is complete
    kExchanging,  // gradients are complete, and the backward goes on; or it failed
    kIncomplete,  // the backward has ended, and gradients did not come
    kExchanged,   // the exchange is over, and no forward follows yet
    kBroken,      // an exchange, or making buckets, failed or is going on
  };

  bool searches_unused() const { return settings_.find_unused_parameters && !settings_.static_graph; }

  void make_buckets(const BucketOrder& order);
  // In backward, on any of autograd's threads.
  void gradient_arrived(size_t number);
  void mark_ready(size_t number);
  void start_complete_buckets();
  void finish();

  std::vector<at::Tensor> parameters_;
  DdpSettings settings_;
  CommunicatorPtr communicator_;
  std::mutex mutex_;
  State state_ = State::kIdle;
  std::string error_;  // of the latest backward that failed
  BucketExchange exchange_;
  ArrivalOrder arrivals_;
  StaticGraph graph_;
  ParameterUse use_;
  UncoveredGradients uncovered_;
  std::vector<size_t> unused_;               // parameters that the backward does not reach
  std::vector<tensor::GradientHook> hooks_;  // of the parameters
};

}  // namespace accel::parallel
