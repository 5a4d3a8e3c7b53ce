// SPDX-License-Identifier: Apache-2.0
// One collective or message on bare tensors, as it is posted to a group.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>

#include "comm/collective_kind.hpp"
#include "comm/reduction_kind.hpp"

namespace accel::comm {

// Throws if it is not defined for the tensor's dtype.
void check_reduction(const at::Tensor& tensor, ReduceOp reduction);
// Whether all_reduce() can scale the result.
bool scales_in_one_pass(const at::Tensor& tensor, ReduceOp reduction);
void check_dense(const at::Tensor& tensor, const char* name);
void check_rank(int rank, int size, const char* name);

struct Collective {
  using Kind = CollectiveKind;

  // The result is multiplied by `scale` in the same pass; it must be 1 except for a sum or mean of floating-point
  // numbers.
  static Collective all_reduce(at::Tensor tensor, ReduceOp reduction, double scale = 1.0);
  static Collective broadcast(at::Tensor tensor, int from);
  static Collective all_gather(at::Tensor input, at::Tensor output);
  static Collective reduce_scatter(at::Tensor input, ReduceOp reduction, at::Tensor output);
  static Collective all_to_all(at::Tensor input, at::Tensor output);
  static Collective scatter(at::Tensor input, int from, at::Tensor output);  // input is used on rank `from` only
  // Among the collectives of tensors on `device`; without it, of the communicator's own device.
  static Collective barrier(std::optional<c10::DeviceType> device = std::nullopt);
  // The part of a rank that has nothing to exchange where others pass tensors: a barrier under another name.
  static Collective without_tensors();
  static Collective send(at::Tensor tensor, int to, int tag);
  static Collective receive(at::Tensor tensor, int from, int tag);

  const char* name() const;
  // Between two ranks, unordered with all other calls.
  bool is_message() const { return traits_of(kind).is_message(); }
  // The tensor whose device determines the backend; undefined for a barrier.
  const at::Tensor& tensor() const { return input.defined() && kind != Kind::kScatter ? input : output; }
  // Throws if the arguments are invalid: tensors must be contiguous, and those of one collective on one device.
  void check(int own_rank, int size) const;

  Kind kind = Kind::kBarrier;
  at::Tensor input = {};   // read; undefined for in-place collectives
  at::Tensor output = {};  // written
  ReduceOp reduction = ReduceOp::kSum;
  double scale = 1.0;
  int rank = 0;  // the source of a broadcast or scatter, the other rank of a message
  int tag = 0;
  std::optional<c10::DeviceType> device = std::nullopt;  // of a barrier
  bool replaces_exchange = false;                        // a barrier that has the part of without_tensors()
  // A receive takes fewer bytes, too, and the result of its work is their number: see comm/shorter_message.hpp.
  bool may_be_shorter = false;
};

}  // namespace accel::comm
