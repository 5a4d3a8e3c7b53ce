// SPDX-License-Identifier: Apache-2.0
#include "accelerator/description.hpp"
#include "accelerator/forward_precision.hpp"

#include <ATen/core/Tensor.h>

#include <map>
#include <sstream>

#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "base/error.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/precision_name.hpp"
#include "data/prepared_dataloader.hpp"
#include "nn/low_precision/fp8_layers.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/dtype.hpp"

namespace accel::accelerator {
namespace {

const char* compute_dtype(Precision precision) {
  if (precision == Precision::kNo) return nullptr;
  return precision == Precision::kFp16 ? "float16" : "bfloat16";
}

void describe_precision(std::ostream& out, Precision precision, const AutocastSettings& autocast) {
  const char* const dtype = compute_dtype(precision);
  if (dtype == nullptr)
    out << "no autocast";
  else if (!autocast.enabled)
    out << "autocast disabled by its options";
  else
    out << "autocast to " << dtype << (autocast.cache_enabled ? "" : " without cache");
}

void describe_fp8_layers(std::ostream& out, const nn::Fp8Layers& fp8) {
  const precision::Fp8Recipe& recipe = fp8.recipe();
  const size_t covered = fp8.selection().layers.size(), all = covered + fp8.selection().skipped.size();
  out << ", " << covered << " of " << all << " linear layers in fp8 with scaling " << precision::name_of(recipe.scaling)
      << " and format " << precision::name_of(recipe.format) << (recipe.use_in_evaluation ? ", also in evaluation" : "")
      << (recipe.compress_activations ? ", activations saved in 8 bits" : "");
}

void describe_sharding(std::ostream& out, const parallel::ParameterParts& parts) {
  const auto modules = parts.sharded_modules();
  int64_t elements = 0, shard_elements = 0;
  for (const parallel::ShardedModule& module : modules) {
    elements += module.elements;
    shard_elements += module.shard_elements;
  }
  out << "sharded in " << modules.size() << " groups, " << shard_elements << " of " << elements
      << " elements on this rank; ";
}

void describe_model(std::ostream& out, const nn::Module& model, parallel::ParallelModel& parallel,
                    const PreparedModel* prepared) {
  std::map<std::string, int64_t> elements;  // by dtype and device
  int64_t trainable = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    elements[text(tensor::dtype_name(parameter.scalar_type()), " on ", parameter.device())] += parameter.numel();
    if (parameter.requires_grad()) trainable += parameter.numel();
  }
  out << model.kind();
  const char* separator = ": ";
  for (const auto& [where, count] : elements) {
    out << separator << count << " parameters of " << where;
    separator = ", ";
  }
  out << ", " << trainable << " trainable; ";
  if (const auto* const parts = parallel.parts()) describe_sharding(out, *parts);
  if (prepared == nullptr) {
    out << "not called through a prepared model\n";
    return;
  }
  const ForwardPrecision& precision = prepared->precision();
  describe_precision(out, precision.precision, precision.autocast);
  if (precision.fp8 != nullptr) describe_fp8_layers(out, *precision.fp8);
  out << ", outputs "
      << (precision.precision == Precision::kNo || precision.keep_output_dtype ? "as they come" : "in float32") << "; "
      << (parallel.exchange() != nullptr ? "gradients averaged over the ranks" : "gradients stay on this rank")
      << "; micro-batch " << prepared->accumulation()->micro_batch << "\n";
}

}  // namespace

std::string describe(const Accelerator& accelerator) {
  const state::State& state = accelerator.state();
  const PreparedObjects& prepared = accelerator.prepared();
  const state::GradientState& gradient_state = *state.gradient_state();
  const state::AccumulationSettings& accumulation = gradient_state.settings();
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);  // else a lack of memory cuts the text short in silence
  out << "device = " << state.device() << "\n"
      << "processes = " << state.num_processes() << ", this is " << state.process_index() << ", over "
      << (state.use_distributed() ? state.communicator()->group().backend_name : "nothing") << "\n"
      << "precision = " << precision_name(state.settings().mixed_precision) << ", ";
  describe_precision(out, state.settings().mixed_precision, accelerator.precision().autocast());
  out << "\nloss scale = ";
  if (prepared.grad_scaler == nullptr)
    out << "none\n";
  else
    out << prepared.grad_scaler->scale() << ", " << prepared.grad_scaler->growth_tracker() << " of "
        << prepared.grad_scaler->settings().growth_interval << " steps until it grows\n";
  out << "accumulation = " << accumulation.num_steps << " micro-batches a step"
      << (accumulation.sync_with_dataloader ? ", fewer at the end of a loader" : "")
      << (accumulation.true_divisor ? ", divided by their number" : "")
      << (accumulation.sync_each_batch ? ", exchanged in each" : "") << "; "
      << (gradient_state.sync_gradients() ? "steps now" : "accumulates now") << "\n";
  for (size_t i = 0; i < prepared.models.size(); i++) {
    out << "model " << i << " = ";
    describe_model(out, *prepared.models[i].model, *prepared.models[i].parallel(),
                   prepared.models[i].prepared.lock().get());
    if (!prepared.models[i].deepspeed.empty())
      out << "DeepSpeed of model " << i << " = " << prepared.models[i].deepspeed << "\n";
  }
  for (size_t i = 0; i < prepared.optimizers.size(); i++) {
    out << "optimizer " << i << " = ";
    const auto& groups = prepared.optimizers[i]->groups();
    for (size_t k = 0; k < groups.size(); k++)
      out << (k == 0 ? "" : "; ") << groups[k].parameters.size() << " parameters at learning rate " << groups[k].lr;
    out << "\n";
  }
  for (size_t i = 0; i < prepared.schedulers.size(); i++)
    out << "scheduler " << i << " = "
        << (!state.settings().step_scheduler_with_optimizer ? "steps by itself"
            : steps_per_update(state) == 1                  ? "follows the steps of the optimizers"
                                                            : text("makes ", steps_per_update(state),
                                                                   " steps for each of the optimizers, as many as ranks read data"))
        << "\n";
  for (size_t i = 0; i < prepared.loaders.size(); i++) {
    const data::PreparedDataLoader& loader = *prepared.loaders[i];
    const auto length = loader.length(), rows = loader.total_batch_size();
    out << "loader " << i << " = " << (length ? std::to_string(*length) : "a stream's") << " batches on this rank, "
        << (loader.sharding().even_batches ? "even" : "uneven") << ", "
        << (rows ? std::to_string(*rows) : "any number of") << " rows a step over all ranks\n";
  }
  return out.str();
}

}  // namespace accel::accelerator
