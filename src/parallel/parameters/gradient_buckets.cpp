#include "parallel/parameters/gradient_buckets.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "base/error.hpp"
#include "parallel/bucket_size.hpp"
#include "parallel/same_model.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: gradients begin on a cache line

int64_t aligned_numel(const at::Tensor& tensor) {
  const int64_t unit = std::max<int64_t>(1, kAlignment / tensor.element_size());
  return (tensor.numel() + unit - 1) / unit * unit;
}

}  // namespace

GradientBuckets::GradientBuckets(const nn::Module& module, std::shared_ptr<comm::Communicator> communicator,
                                 double bucket_cap_mb)
    : communicator_(std::move(communicator)) {
  const int64_t most_bytes = bucket_bytes(bucket_cap_mb);
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    gradients_.push_back({name, parameter, {}, 0});
    parameters.push_back(parameter);
  }
  require(!parameters.empty(), Status::kInvalidArgument,
          "the module has no trainable parameter; add those whose gradients are to be averaged");
  start_alike(module, *communicator_);
  make_buckets(parameters, most_bytes);
}

void GradientBuckets::make_buckets(const std::vector<at::Tensor>& parameters, int64_t most_bytes) {
  const std::vector<bool> sparse(parameters.size(), false);
  const std::vector<size_t> limits{static_cast<size_t>(most_bytes)};
  auto assignment = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits, sparse, {}, {}));
  std::reverse(assignment.begin(), assignment.end());  // backward goes from the last parameters to the first
  for (const auto& indices : assignment) {
    int64_t numel = 0;
    for (const size_t index : indices) numel += aligned_numel(parameters[index]);
    Bucket bucket;
    bucket.memory = allocate(numel, parameters[indices[0]].options().requires_grad(false));
    bucket.gradients = bucket.waiting = indices.size();
    int64_t begin = 0;
    for (const size_t index : indices) {
      const at::Tensor& parameter = parameters[index];
      Gradient& gradient = gradients_[index];
      gradient.memory = bucket.memory.narrow(0, begin, parameter.numel()).view(parameter.sizes());
      gradient.bucket = buckets_.size();
      parameter.mutable_grad() = gradient.memory;
      begin += aligned_numel(parameter);
    }
    buckets_.push_back(std::move(bucket));
  }
}

// Where the ranks share memory it lies there, to be reduced in place.
at::Tensor GradientBuckets::allocate(int64_t numel, const at::TensorOptions& options) const {
  if (const auto& group = communicator_->process_group()) {
    const auto backend = group->getBackend(options.device().type());
    if (backend->supportsTensorAlloc(options.device().index())) return backend->allocateTensor(numel, options).zero_();
  }
  return at::zeros({numel}, options);
}

GradientBuckets::~GradientBuckets() = default;

const at::Tensor& GradientBuckets::gradient(size_t index) const {
  require(index < size(), Status::kInvalidArgument, "index is ", index, "; expected 0 to ", size() - 1,
          ", a trainable parameter of the module");
  return gradients_[index].memory;
}

void GradientBuckets::ready(size_t index, const at::Tensor& given, Exchange exchange) {
  const at::Tensor& memory = gradient(index);
  const std::lock_guard<std::mutex> lock(mutex_);
  Gradient& gradient = gradients_[index];
  require(!gradient.ready, Status::kInvalidState, "the gradient of '", gradient.name,
          "' is ready already in this micro-batch; call accel_parameters_synchronize() at its end");
  if (given.defined()) {
    require(given.sizes() == memory.sizes(), Status::kShapeMismatch, "the gradient of '", gradient.name, "' has shape ",
            given.sizes(), "; expected ", memory.sizes());
    const at::NoGradGuard no_grad;
    if (first_of_group_)
      memory.copy_(given);
    else
      memory.add_(given);
  }
  gradient.parameter.mutable_grad() = memory;
  gradient.ready = true;
  buckets_[gradient.bucket].waiting -= 1;
  // Nothing is left to overlap with the last bucket: it waits for the thread that synchronizes, which may do the work.
  if (exchange) start_complete_buckets(buckets_.size() - 1, *exchange);
}

void GradientBuckets::check_all_ready() const {
  std::string missing;
  for (const Gradient& gradient : gradients_)
    if (!gradient.ready) missing += text(missing.empty() ? "'" : ", '", gradient.name, "'");
  require(missing.empty(), Status::kInvalidState, "gradients are not ready: ", missing,
          "; expected accel_parameters_grad_ready() for each parameter in each micro-batch");
}

void GradientBuckets::start_complete_buckets(size_t end, double factor) {
  while (next_bucket_ < end && buckets_[next_bucket_].waiting == 0) start_bucket(buckets_[next_bucket_++], factor);
}

void GradientBuckets::start_bucket(Bucket& bucket, double factor) {
  bucket.work = communicator_->start(comm::Collective::all_reduce(bucket.memory, comm::Reduction::kMean, factor));
}

GradientBuckets::Bucket* GradientBuckets::start_all_but_last(Exchange exchange) {
  check_all_ready();
  for (Gradient& gradient : gradients_) gradient.ready = false;
  if (exchange) start_complete_buckets(buckets_.size() - 1, *exchange);
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.gradients;
  first_of_group_ = exchange.has_value();
  return exchange ? &buckets_.back() : nullptr;
}

void GradientBuckets::start(Exchange exchange) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Bucket* const last = start_all_but_last(exchange)) start_bucket(*last, *exchange);
}

std::shared_ptr<comm::Work> GradientBuckets::started() {
  std::vector<std::shared_ptr<comm::Work>> works;
  for (Bucket& bucket : buckets_)
    if (auto work = std::exchange(bucket.work, nullptr)) works.push_back(std::move(work));
  return comm::when_all(std::move(works));
}

void GradientBuckets::synchronize(Exchange exchange) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Bucket* const last = start_all_but_last(exchange))
      communicator_->all_reduce(last->memory, comm::Reduction::kMean, *exchange);
  }
  const StepTimes::Section waiting(*communicator_->step_times(), StepPart::kCommunication);
  const auto works = started();
  works->wait();
  works->result();
}

}  // namespace accel::parallel
