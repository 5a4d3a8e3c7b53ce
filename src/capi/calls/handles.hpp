// SPDX-License-Identifier: Apache-2.0
// Handles: the opaque structs of accel.h.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "accel.h"
#include "capi/calls/object.hpp"

namespace accel {
namespace nn {
class ContinuousBatch;
class Module;
}  // namespace nn
namespace optim {
class Optimizer;
class Scheduler;
}  // namespace optim
namespace data {
class Dataset;
class IterableDataset;
class Sampler;
class Loader;
}  // namespace data
namespace accelerator {
class Accelerator;
class PreparedParameters;
}  // namespace accelerator
class StepTimes;
namespace profile {
class Profiler;
}
namespace tokenizers {
class DecodeStream;
class Tokenizer;
}  // namespace tokenizers
namespace track {
class Logger;
class ProgressBar;
class Tracker;
}  // namespace track
namespace bigmodel {
class OffloadHook;
class WeightStream;
}  // namespace bigmodel
namespace state {
class BatchLoop;
}
namespace comm {
class Communicator;
class Mesh;
class Work;
class WorkList;
}  // namespace comm
}  // namespace accel

struct accel_error final : accel::capi::Handle<accel::capi::ObjectKind::kError> {
  accel_status_t status = ACCEL_OK;
  std::string message;
  std::string function;
  int32_t rank = -1;
};

struct accel_state final : accel::capi::Handle<accel::capi::ObjectKind::kState> {
  explicit accel_state(std::shared_ptr<accel::accelerator::Accelerator> accelerator);
  std::shared_ptr<accel::accelerator::Accelerator> accelerator;
  accel_device_t device;  // the accelerator's, for accel_device() to point at
};

struct accel_tensor final : accel::capi::Handle<accel::capi::ObjectKind::kTensor> {
  explicit accel_tensor(at::Tensor tensor) : tensor(std::move(tensor)) {}
  at::Tensor tensor;
};

struct accel_module final : accel::capi::Handle<accel::capi::ObjectKind::kModule> {
  explicit accel_module(std::shared_ptr<accel::nn::Module> module) : module(std::move(module)) {}
  std::shared_ptr<accel::nn::Module> module;
};

struct accel_generation_batch final : accel::capi::Handle<accel::capi::ObjectKind::kGenerationBatch> {
  explicit accel_generation_batch(std::shared_ptr<accel::nn::ContinuousBatch> batch) : batch(std::move(batch)) {}
  std::shared_ptr<accel::nn::ContinuousBatch> batch;
};

struct accel_optimizer final : accel::capi::Handle<accel::capi::ObjectKind::kOptimizer> {
  explicit accel_optimizer(std::shared_ptr<accel::optim::Optimizer> optimizer) : optimizer(std::move(optimizer)) {}
  std::shared_ptr<accel::optim::Optimizer> optimizer;
};

struct accel_scheduler final : accel::capi::Handle<accel::capi::ObjectKind::kScheduler> {
  explicit accel_scheduler(std::shared_ptr<accel::optim::Scheduler> scheduler) : scheduler(std::move(scheduler)) {}
  std::shared_ptr<accel::optim::Scheduler> scheduler;
};

struct accel_dataset final : accel::capi::Handle<accel::capi::ObjectKind::kDataset> {
  explicit accel_dataset(std::shared_ptr<const accel::data::Dataset> dataset) : dataset(std::move(dataset)) {}
  explicit accel_dataset(std::shared_ptr<const accel::data::IterableDataset> iterable);
  // Never null: an iterable dataset has one here that refuses to be read, so that only callers that accept both kinds
  // check for it.
  std::shared_ptr<const accel::data::Dataset> dataset;
  std::shared_ptr<const accel::data::IterableDataset> iterable;  // null for items by number
};

struct accel_sampler final : accel::capi::Handle<accel::capi::ObjectKind::kSampler> {
  explicit accel_sampler(std::shared_ptr<accel::data::Sampler> sampler) : sampler(std::move(sampler)) {}
  std::shared_ptr<accel::data::Sampler> sampler;
};

struct accel_dataloader final : accel::capi::Handle<accel::capi::ObjectKind::kDataloader> {
  explicit accel_dataloader(std::shared_ptr<accel::data::Loader> loader) : loader(std::move(loader)) {}
  std::shared_ptr<accel::data::Loader> loader;
};

struct accel_loop final : accel::capi::Handle<accel::capi::ObjectKind::kLoop> {
  explicit accel_loop(std::shared_ptr<accel::state::BatchLoop> loop) : loop(std::move(loop)) {}
  std::shared_ptr<accel::state::BatchLoop> loop;
};

struct accel_work final : accel::capi::Handle<accel::capi::ObjectKind::kWork> {
  accel_work(std::shared_ptr<accel::comm::Work> work, const accel::comm::Communicator& communicator);
  std::shared_ptr<accel::comm::Work> work;
  std::shared_ptr<accel::comm::WorkList> works;  // of its state
  std::shared_ptr<accel::StepTimes> step_times;
};

struct accel_parameters final : accel::capi::Handle<accel::capi::ObjectKind::kParameters> {
  accel_parameters(std::shared_ptr<accel::accelerator::PreparedParameters> parameters,
                   std::weak_ptr<accel::accelerator::Accelerator> accelerator)
      : parameters(std::move(parameters)), accelerator(std::move(accelerator)) {}
  std::shared_ptr<accel::accelerator::PreparedParameters> parameters;
  std::weak_ptr<accel::accelerator::Accelerator> accelerator;  // gone with its state
};

struct accel_generator final : accel::capi::Handle<accel::capi::ObjectKind::kGenerator> {
  explicit accel_generator(at::Generator generator) : generator(std::move(generator)) {}
  at::Generator generator;
};

struct accel_mesh final : accel::capi::Handle<accel::capi::ObjectKind::kMesh> {
  accel_mesh(std::shared_ptr<accel::comm::Mesh> mesh, std::shared_ptr<accel::accelerator::Accelerator> accelerator)
      : mesh(std::move(mesh)), accelerator(std::move(accelerator)) {}
  std::shared_ptr<accel::comm::Mesh> mesh;
  std::shared_ptr<accel::accelerator::Accelerator> accelerator;  // of the ranks
};

struct accel_offload_hook final : accel::capi::Handle<accel::capi::ObjectKind::kOffloadHook> {
  explicit accel_offload_hook(std::shared_ptr<accel::bigmodel::OffloadHook> hook) : hook(std::move(hook)) {}
  std::shared_ptr<accel::bigmodel::OffloadHook> hook;
};

struct accel_weight_stream final : accel::capi::Handle<accel::capi::ObjectKind::kWeightStream> {
  explicit accel_weight_stream(std::shared_ptr<accel::bigmodel::WeightStream> stream) : stream(std::move(stream)) {}
  std::shared_ptr<accel::bigmodel::WeightStream> stream;
};

struct accel_tracker final : accel::capi::Handle<accel::capi::ObjectKind::kTracker> {
  explicit accel_tracker(std::shared_ptr<accel::track::Tracker> tracker) : tracker(std::move(tracker)) {}
  std::shared_ptr<accel::track::Tracker> tracker;
};

struct accel_logger final : accel::capi::Handle<accel::capi::ObjectKind::kLogger> {
  explicit accel_logger(std::shared_ptr<accel::track::Logger> logger) : logger(std::move(logger)) {}
  std::shared_ptr<accel::track::Logger> logger;
};

struct accel_progress_bar final : accel::capi::Handle<accel::capi::ObjectKind::kProgressBar> {
  explicit accel_progress_bar(std::shared_ptr<accel::track::ProgressBar> bar) : bar(std::move(bar)) {}
  std::shared_ptr<accel::track::ProgressBar> bar;
};

struct accel_profile final : accel::capi::Handle<accel::capi::ObjectKind::kProfile> {
  explicit accel_profile(std::shared_ptr<accel::profile::Profiler> profiler) : profiler(std::move(profiler)) {}
  std::shared_ptr<accel::profile::Profiler> profiler;
};

struct accel_tokenizer final : accel::capi::Handle<accel::capi::ObjectKind::kTokenizer> {
  explicit accel_tokenizer(std::shared_ptr<const accel::tokenizers::Tokenizer> tokenizer)
      : tokenizer(std::move(tokenizer)) {}
  std::shared_ptr<const accel::tokenizers::Tokenizer> tokenizer;
};

struct accel_decode_stream final : accel::capi::Handle<accel::capi::ObjectKind::kDecodeStream> {
  explicit accel_decode_stream(std::shared_ptr<accel::tokenizers::DecodeStream> stream) : stream(std::move(stream)) {}
  std::shared_ptr<accel::tokenizers::DecodeStream> stream;
};

namespace accel::capi {

inline const std::shared_ptr<accelerator::Accelerator>& accelerator_of(const accel_state_t* state) {
  return check(state, "state").accelerator;
}

}  // namespace accel::capi
