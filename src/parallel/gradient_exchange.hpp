// SPDX-License-Identifier: Apache-2.0
// Gradient exchange: what can be set about the exchange of a model's gradients with other ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

// The application's own communication hook: replaces a bucket's gradients, in place, by those for the optimizer.
using BucketCallback = std::function<void(const at::Tensor& buffer, int64_t bucket, bool is_last)>;

using CommunicatorPtr = std::shared_ptr<comm::Communicator>;

// A gradient of this rank alone, by which an update would change the parameter otherwise than on other ranks.
struct UncoveredGradient {
  std::string name;
  at::Tensor parameter;
  bool was_frozen;  // when the model was prepared; otherwise its backward followed no forward of the prepared model
};

enum class MicroBatches : uint8_t {
  kTrained,
  kTrainedAfterFailure,  // the step before failed on all ranks that exchange gradients
  kEvaluated,            // forwards alone, which leave gradients as they are
};

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Makes the next backward exchange gradients although its forward ran with the exchange off; or takes that back, of a
  // backward that failed before it came to a gradient.
  virtual void expect_backward(bool /*is_expected*/ = true) {}
  // Sets the ranks that exchange gradients, instead of all of the model; null: none, also in the backward of an earlier
  // forward. Returns the former group.
  virtual CommunicatorPtr set_gradient_group(CommunicatorPtr group) = 0;
  // The application exchanges gradients from the next backward on.
  virtual void register_comm_hook(BucketCallback callback) = 0;
  // This rank's state of the exchange across steps; nothing if there is none.
  virtual c10::IValue reduction_state() const { return {}; }
  virtual void load_reduction_state(const c10::IValue& /*saved*/) {}
  // The gradients that no exchange has covered since a backward gave them. None while the exchange is off, of sparse
  // ones, and where parameters have no gradients but those that were exchanged.
  virtual std::vector<UncoveredGradient> uncovered_gradients() { return {}; }
  // Whether this exchange has covered the gradient that the parameter has.
  virtual bool covers(const at::Tensor& /*parameter*/) { return false; }
  // Collective: exchanges the gradients that have accumulated while the exchange was off; a parameter without one gets
  // the mean with 0 as its own. After a backward that failed, it ends the exchange for which others wait. Nothing if
  // the last backward of these micro-batches has ended, and for kinds that do it at the end of a step.
  virtual void exchange_accumulated() {}
  // Around the forwards and backwards of a step of a pipeline, which come in any order, while gradients are not
  // exchanged. Returns whether parameters keep their memory through all of these. Collective among the ranks that
  // exchange gradients.
  virtual bool begin_micro_batches(MicroBatches /*kind*/) { return true; }
  // Collective, as soon as this rank computes no more in these micro-batches, after an error or not: where parameters
  // are gathered in each, it gathers with the other ranks until these come to their end, too. Returns whether the error
  // of this rank is that another one came to its end before.
  virtual bool end_gathers() { return false; }
  // Ahead of the exchange behind them. After an error gradients of these are gone, or not complete.
  virtual void end_micro_batches(bool /*have_failed*/) {}
  // Behind a backward of a step that a device records: each time that the step is done the gradients are exchanged
  // here, between two parts of the recording. Now no rank takes part.
  virtual void record_exchange() {}
};

}  // namespace accel::parallel
