// SPDX-License-Identifier: Apache-2.0
// Section 10: layers and sequences that are split over ranks, and operators at the ends of split regions.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/parallelism.hpp"
#include "capi/values/tensor_list.hpp"
#include "parallel/regions/parallel_operators.hpp"
#include "parallel/regions/vocabulary_loss.hpp"
#include "parallel/sequence_split.hpp"
#include "tensor/dtype.hpp"

namespace accel::capi {
namespace {

parallel::RankGroup group_of(accel_state_t* state) { return accelerator_of(state)->state().communicator(); }

const at::Tensor& floating(const accel_tensor_t* tensor, const char* name) {
  const at::Tensor& checked = check(tensor, name).tensor;
  require(checked.is_floating_point(), Status::kTypeMismatch, name, " has dtype ",
          tensor::dtype_name(checked.scalar_type()), "; expected a floating one, which has a gradient");
  return checked;
}

std::optional<int64_t> size_of_whole(int64_t whole) {
  require(whole >= -1, Status::kInvalidArgument, "whole is ", whole,
          "; expected the size of the joined dimension, or -1 for equal parts");
  return whole == -1 ? std::nullopt : std::optional(whole);
}

const parallel::SequenceSplit& sequences_of(accel_state_t* state) {
  return accelerator_of(state)->prepared().sequences->split();
}

class SplitSequences final : public ScopeBody {
 public:
  explicit SplitSequences(std::unique_ptr<parallel::SequenceSplit::Scope> scope) : scope_(std::move(scope)) {}

 private:
  const std::unique_ptr<parallel::SequenceSplit::Scope> scope_;
};

std::vector<at::Tensor> read_buffers(accel_tensor_t* const* tensors, size_t count, const char* name) {
  return count == 0 ? std::vector<at::Tensor>() : read_tensors(tensors, count, name);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_split_layers(accel_state_t* state, accel_module_t* module,
                                                 const accel_tensor_parallel_options_t* options) {
  return guarded(__func__, [&] {
    const nn::ModulePtr& model = check(module, "module").module;
    accelerator_of(state)->preparation().split_layers(model, read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_context_parallel_begin(accel_state_t* state, accel_tensor_t* const* buffers,
                                                           const int64_t* seq_dims, size_t n_buffers,
                                                           accel_tensor_t* const* no_restore, size_t n_no_restore,
                                                           accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const parallel::SequenceSplit& sequences = sequences_of(state);
    const std::vector<at::Tensor> tensors = read_buffers(buffers, n_buffers, "buffers");
    check_array(seq_dims, n_buffers, "seq_dims");
    std::vector<parallel::SplitBuffer> split;
    for (size_t i = 0; i < n_buffers; i++) split.push_back({tensors[i], seq_dims[i]});
    const std::vector<at::Tensor> kept = read_buffers(no_restore, n_no_restore, "no_restore");
    for (size_t i = 0; i < kept.size(); i++) {
      bool is_buffer = false;
      for (parallel::SplitBuffer& buffer : split)
        if (buffer.tensor.is_same(kept[i])) {
          is_buffer = true;
          buffer.restore = false;
        }
      require(is_buffer, Status::kInvalidArgument, "no_restore[", i, "] is none of the ", n_buffers,
              " buffers; expected some of them");
    }
    return open_scope(std::make_unique<SplitSequences>(sequences.open(std::move(split))));
  });
}

ACCEL_FUNCTION accel_status_t accel_context_parallel_gather(accel_state_t* state, const accel_tensor_t* part,
                                                            int64_t dim, accel_tensor_t** out) {
  return guarded(__func__, out, [&] { return sequences_of(state).join(check(part, "part").tensor, dim); });
}

ACCEL_FUNCTION accel_status_t accel_context_parallel_positions(accel_state_t* state, int64_t length,
                                                               accel_tensor_t** out) {
  return guarded(__func__, out, [&] { return sequences_of(state).positions(length); });
}

ACCEL_FUNCTION accel_status_t accel_parallel_copy(accel_state_t* state, const accel_tensor_t* input,
                                                  accel_tensor_t** out) {
  return guarded(__func__, out, [&] { return parallel::parallel_copy(floating(input, "input"), group_of(state)); });
}

ACCEL_FUNCTION accel_status_t accel_parallel_reduce(accel_state_t* state, const accel_tensor_t* input,
                                                    accel_tensor_t** out) {
  return guarded(__func__, out, [&] { return parallel::parallel_reduce(floating(input, "input"), group_of(state)); });
}

ACCEL_FUNCTION accel_status_t accel_parallel_gather(accel_state_t* state, const accel_tensor_t* part, int64_t dim,
                                                    int64_t whole, int32_t replicated, accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const auto gradient =
        replicated != 0 ? parallel::GatheredGradient::kReplicated : parallel::GatheredGradient::kPartial;
    return parallel::parallel_gather(floating(part, "part"), dim, gradient, group_of(state), size_of_whole(whole));
  });
}

ACCEL_FUNCTION accel_status_t accel_parallel_scatter(accel_state_t* state, const accel_tensor_t* input, int64_t dim,
                                                     accel_tensor_t** out) {
  return guarded(__func__, out,
                 [&] { return parallel::parallel_scatter(floating(input, "input"), dim, group_of(state)); });
}

ACCEL_FUNCTION accel_status_t accel_parallel_reduce_scatter(accel_state_t* state, const accel_tensor_t* input,
                                                            int64_t dim, accel_tensor_t** out) {
  return guarded(__func__, out,
                 [&] { return parallel::parallel_reduce_scatter(floating(input, "input"), dim, group_of(state)); });
}

ACCEL_FUNCTION accel_status_t accel_parallel_class_scores(accel_state_t* state, const accel_tensor_t* scores,
                                                          int64_t classes, accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const parallel::RankGroup group = group_of(state);
    const at::Tensor& own = floating(scores, "scores");
    return parallel::class_scores(own, parallel::split_classes(group, classes, /*splits_sequence=*/false), group);
  });
}

ACCEL_FUNCTION accel_status_t accel_parallel_all_to_all(accel_state_t* state, const accel_tensor_t* input,
                                                        int64_t split, int64_t join, int64_t whole,
                                                        accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    return parallel::parallel_all_to_all(floating(input, "input"), split, join, group_of(state), size_of_whole(whole));
  });
}

}  // namespace accel::capi
