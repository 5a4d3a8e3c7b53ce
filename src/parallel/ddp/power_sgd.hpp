// PowerSGD (Vogels, Karimireddy, Jaggi, 2019): each matrix of gradients travels as a product of two thin ones, found by
// one step of a power iteration. With the numbers of torch's powerSGD_hook.
#pragma once

#include <map>
#include <random>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

#include "parallel/ddp/comm_hook.hpp"
#include "parallel/ddp/gradient_averaging.hpp"
#include "tensor/stateful.hpp"

namespace accel::parallel {

class PowerSgd final : public c10d::CommHookInterface, public tensor::Stateful {
 public:
  // `whole_bucket`: all gradients of a bucket are one square matrix, filled up with zeros.
  PowerSgd(const PowerSgdSettings& settings, bool whole_bucket, ProcessGroupPtr process_group);

  // Starts the means of the first thin matrices; they travel while backward goes on.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  // The second thin matrices, and their product.
  at::Tensor parseHookResult(const c10::IValue& result) override;

  // What this rank remembers, for the same buckets. Nothing at all is the beginning.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;

 private:
  // Matrices of one shape, [batch, rows, columns].
  struct Matrices {
    at::Tensor values;                // the gradients themselves, or a stack of those below
    std::vector<at::Tensor> stacked;  // where the stack came from
    at::Tensor p, q;                  // [batch, rows, rank], [batch, columns, rank]; views of ThinMemory
  };
  struct ThinMemory {
    at::Tensor p, q;  // of all matrices of a bucket: each travels as a whole; p only for the moment
  };
  // A bucket between the two calls.
  struct Pending {
    at::Tensor buffer;  // what the Reducer gave
    at::Tensor flat;    // what is compressed: the buffer, or a longer copy
    at::Tensor before;  // a copy of flat, for the error; undefined without feedback
    std::vector<Matrices> matrices;
    std::vector<at::Tensor> plain;  // not worth compressing
    at::Tensor plain_memory;
    c10::intrusive_ptr<c10d::Work> plain_work;
    bool is_last = false;
  };

  void choose_matrices(const std::vector<at::Tensor>& gradients, Pending& pending) const;
  // Gives the matrices their thin ones; whether those are new.
  bool provide_thin_matrices(size_t bucket, Pending& pending);
  void fill_with_random(Pending& pending);
  void orthogonalize(const at::Tensor& matrices) const;
  c10::intrusive_ptr<c10d::Work> all_reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType reduction, bool async);

  PowerSgdSettings settings_;
  bool whole_bucket_;
  ProcessGroupPtr process_group_;
  GradientAveraging averaging_;  // of the first iterations
  int64_t iteration_ = 0;
  std::mt19937 seeds_;
  // By number of the bucket.
  std::map<size_t, at::Tensor> errors_;
  std::map<size_t, ThinMemory> thin_;
  std::map<size_t, Pending> pending_;
};

}  // namespace accel::parallel
