// SPDX-License-Identifier: Apache-2.0
// Split sequence: what computes along a sequence, where each rank of a group has a part of its positions. Attention,
// positions and mean losses ask the scope of their thread; without one, a sequence is whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace accel::nn {

class SplitSequence {
 public:
  SplitSequence() = default;
  virtual ~SplitSequence() = default;
  SplitSequence(const SplitSequence&) = delete;
  SplitSequence& operator=(const SplitSequence&) = delete;

  // Attention of this rank's positions to the whole sequence, with autograd; [batch, heads, positions, size].
  virtual at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                               std::optional<double> scale) const = 0;
  // The positions in the whole sequence of a part of this length, int64 on the CPU.
  virtual at::Tensor positions(int64_t own_length) const = 0;
  virtual int64_t whole_length(int64_t own_length) const = 0;
  // The sum of all ranks' sums divided by that of their counts, two scalars. The mean over the ranks of the gradients
  // that they get from it is the gradient of that quotient.
  virtual at::Tensor mean(const at::Tensor& sum, const at::Tensor& count) const = 0;
  // The sum of all ranks' numbers.
  virtual int64_t total(int64_t own) const = 0;

  // Bound to its thread; scopes end in reverse order, and the innermost counts. Null: sequences are whole.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<const SplitSequence> split);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class SplitSequence;
    const std::shared_ptr<const SplitSequence> split_;
    const Scope* const outer_;
  };

  static std::shared_ptr<const SplitSequence> current();  // null where sequences are whole
};

// The positions of a sequence, or of this rank's part of it: `length` successive ones from `begin` on where it is
// whole. Throws in a scope if `begin` is not 0, which is after a cache.
at::Tensor sequence_positions(int64_t begin, int64_t length, at::Device device);

// The length of a sequence of which this thread sees `length` positions.
int64_t whole_sequence_length(int64_t length);

}  // namespace accel::nn
