// SPDX-License-Identifier: Apache-2.0
// Section 10: models in stages.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/prepared_model.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/value.hpp"
#include "nn/split/split_sequence.hpp"
#include "parallel/stage_pipeline.hpp"
#include "tensor/autograd/loss.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

using parallel::PipelineLoss;

accelerator::PreparedModel& prepared_of(nn::Module& module) {
  auto* const prepared = dynamic_cast<accelerator::PreparedModel*>(&module);
  require(prepared != nullptr, Status::kInvalidArgument,
          "module is not prepared; expected what accel_prepare_model() gave");
  return *prepared;
}

c10::IValue optional_value(const accel_value_t* value, const char* name) {
  return value == nullptr ? c10::IValue() : to_ivalue(*value, name);
}

// The inputs of a map by their places.
c10::IValue inputs_by_name(const c10::IValue& map, const std::vector<std::string>& names) {
  std::vector<c10::IValue> inputs;
  for (const auto& entry : map.toGenericDict()) {
    const std::string name = entry.key().isString() ? entry.key().toStringRef() : "";
    const auto found = std::find(names.begin(), names.end(), name);
    require(found != names.end(), Status::kNotFound, "the model has no input '", name, "'; expected one of its ",
            names.size(), " names");
    const auto place = static_cast<size_t>(found - names.begin());
    inputs.resize(std::max(inputs.size(), place + 1));
    inputs[place] = entry.value();
  }
  return tree::new_tuple(std::move(inputs));
}

c10::IValue read_inputs(const accel_value_t* given, const nn::Module& model) {
  const c10::IValue value = optional_value(given, "inputs");
  if (value.isNone()) return value;
  if (value.isGenericDict()) return inputs_by_name(value, model.input_names());
  return tree::new_tuple(tree::is_sequence(value) ? tree::sequence_items(value).vec()
                                                  : std::vector<c10::IValue>{value});
}

// Only this rank may have values, and other ranks wait for its stages.
parallel::PipelineBatch read_batch(const accel_value_t* inputs, const accel_value_t* targets, const nn::Module& model) {
  parallel::PipelineBatch batch;
  try {
    batch.inputs = read_inputs(inputs, model);
    batch.targets = optional_value(targets, "targets");
  } catch (const std::exception&) {
    batch.error = std::current_exception();
  }
  return batch;
}

constexpr int64_t kLeftOut = -100;

bool are_labels(const c10::IValue& targets) {
  return targets.isTensor() && targets.toTensor().scalar_type() == at::kLong;
}

at::Tensor scores_of(const c10::IValue& output) {
  require(output.isTensor(), Status::kTypeMismatch, "the last stage returned a ", tree::kind_name(output),
          "; expected logits, of which the loss is the cross entropy");
  return output.toTensor();
}

at::Tensor labels_of(const c10::IValue& targets) {
  require(targets.isTensor(), Status::kTypeMismatch, "the targets are a ", tree::kind_name(targets),
          "; expected the labels of a cross entropy");
  return targets.toTensor();
}

int64_t count_labels(const at::Tensor& labels) { return labels.ne(kLeftOut).sum().item<int64_t>(); }

// The labels of which a mean is: those of all ranks that have parts of a sequence.
int64_t count_labels_of_mean(const at::Tensor& labels) {
  const auto split = nn::SplitSequence::current();
  const int64_t own = count_labels(labels);
  return split == nullptr ? own : split->total(own);
}

// A sum, and its count, are those of this rank's labels.
PipelineLoss cross_entropy(bool is_sum) {
  PipelineLoss loss;
  loss.is_sum = is_sum;
  loss.count = [is_sum](const c10::IValue& targets) -> int64_t {
    if (!are_labels(targets)) return -1;
    return is_sum ? count_labels(targets.toTensor()) : count_labels_of_mean(targets.toTensor());
  };
  loss.of_output = [is_sum](const c10::IValue& output, const c10::IValue& targets) {
    const at::Tensor labels = labels_of(targets);
    const at::Tensor value = tensor::cross_entropy(scores_of(output), labels, is_sum);
    const bool is_over_nothing = !is_sum && count_labels_of_mean(labels) == 0;
    return is_over_nothing ? scores_of(output).sum() * 0 : value;
  };
  return loss;
}

PipelineLoss named_loss(const std::string& name) {
  require(name == "cross_entropy" || name == "cross_entropy_sum", Status::kInvalidArgument, "loss_name is '", name,
          "'; expected \"cross_entropy\", \"cross_entropy_sum\", or NULL");
  return cross_entropy(name == "cross_entropy_sum");
}

PipelineLoss callback_loss(const Callback<accel_pipeline_loss_fn>& callback) {
  PipelineLoss loss;
  loss.of_output = [callback](const c10::IValue& output, const c10::IValue& targets) {
    const OwnedValue given_output(from_ivalue(output)), given_targets(from_ivalue(targets));
    accel_tensor_t* given = nullptr;
    callback.checked("loss", &given_output.get(), &given_targets.get(), &given);
    const TensorHandle result(given);
    require(result != nullptr, Status::kTypeMismatch,
            "the callback loss returned ACCEL_OK and did not write out_loss; expected the loss there");
    return check(result.get(), "out_loss").tensor;
  };
  return loss;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_pipeline_step(accel_state_t* state, accel_module_t* module,
                                                  const accel_value_t* inputs, const accel_value_t* targets,
                                                  const char* loss_name, accel_pipeline_loss_fn loss, void* user_data,
                                                  accel_destroy_fn destroy, double* out_loss) {
  return guarded(__func__, [&] {
    const Callback<accel_pipeline_loss_fn> callback(loss, user_data, destroy);
    const auto& accelerator = accelerator_of(state);
    nn::Module& given = *check(module, "module").module;
    check_pointer(out_loss, "out_loss");
    const parallel::PipelineBatch batch = read_batch(inputs, targets, given);
    if (batch.error && dynamic_cast<accelerator::PreparedModel*>(&given) == nullptr)
      std::rethrow_exception(batch.error);
    accelerator::PreparedModel& model = prepared_of(given);
    require(loss == nullptr || loss_name == nullptr, Status::kInvalidArgument,
            "there are a loss_name and a loss; expected one of them, or none");
    PipelineLoss chosen;
    if (loss_name != nullptr)
      chosen = named_loss(loss_name);
    else if (loss != nullptr)
      chosen = callback_loss(callback);
    *out_loss = accelerator->backward().run_in_stages(model, batch, chosen);
  });
}

ACCEL_FUNCTION accel_status_t accel_pipeline_describe(const accel_module_t* module, accel_buffer_t* out) {
  return guarded(__func__, out,
                 [&] { return new_buffer(prepared_of(*check(module, "module").module).pipeline().describe()); });
}

}  // namespace accel::capi
