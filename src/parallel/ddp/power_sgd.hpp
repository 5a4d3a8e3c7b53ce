// SPDX-License-Identifier: Apache-2.0
// PowerSGD (Vogels, Karimireddy, Jaggi, 2019): gradient compression, which sends the low-rank factors P and Q of each
// gradient matrix, computed by one step of a power iteration. Computes the same numbers as torch's powerSGD_hook.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "config/generated/settings/prepare/power_sgd.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/ddp/gradient_averaging.hpp"
#include "parallel/gradient_exchange.hpp"
#include "tensor/stateful.hpp"

namespace accel::parallel {

class PowerSgd final : public CommHook, public tensor::Stateful, public std::enable_shared_from_this<PowerSgd> {
 public:
  // `whole_bucket`: treats all gradients of a bucket as one square matrix, padded with zeros.
  PowerSgd(const PowerSgdSettings& settings, bool whole_bucket, CommunicatorPtr ranks);

  // Computes P and starts its all-reduce, which runs while backward continues. The end computes Q, its all-reduce, and
  // P * Q^T.
  Finish start(const GradientBucket& bucket) override;

  // This rank's state, for the same buckets. An empty state is the initial one.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;

 private:
  // Matrices of one shape, [batch, rows, columns].
  struct Matrices {
    at::Tensor values;                // the gradients, or a stack of those below
    std::vector<at::Tensor> stacked;  // the gradients that were stacked
    at::Tensor p, q;                  // [batch, rows, rank], [batch, columns, rank]; views of FactorMemory
  };
  struct FactorMemory {
    at::Tensor p, q;  // of all matrices of a bucket: each is sent as one tensor; p is temporary
  };
  // A bucket between the two steps.
  struct Pending {
    GradientBucket bucket;
    at::Tensor flat;    // to be compressed: the bucket's memory, or a longer copy
    at::Tensor before;  // a copy of flat, for the error feedback; undefined without
    std::vector<Matrices> matrices;
    std::vector<at::Tensor> plain;  // not worth compressing
    at::Tensor plain_memory;
    std::shared_ptr<comm::Work> p_work, plain_work;
  };

  void choose_matrices(Pending& pending) const;
  // Assigns P and Q to the matrices. Returns whether they are new.
  bool provide_thin_matrices(size_t bucket, Pending& pending);
  void fill_with_random(Pending& pending);
  void orthogonalize(const at::Tensor& matrices) const;
  void finish(const Pending& pending);

  PowerSgdSettings settings_;
  bool whole_bucket_;
  CommunicatorPtr ranks_;
  GradientAveraging averaging_;  // for the first iterations
  int64_t iteration_ = 0;
  std::mt19937 seeds_;
  // By bucket index.
  std::map<size_t, at::Tensor> errors_;
  std::map<size_t, FactorMemory> factors_;
};

}  // namespace accel::parallel
