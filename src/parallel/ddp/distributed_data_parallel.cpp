#include "parallel/ddp/distributed_data_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "kernels/tensor_memory.hpp"
#include "parallel/ddp/reducer_sink.hpp"
#include "parallel/same_model.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kFirstBucketBytes = kMegabyte;  // a small first bucket: communication starts early

// Where the Reducer's buckets are: buckets that the ranks share are reduced in place, and a gradient is written once.
// Null where they cannot be shared.
kernels::TensorMemorySource::Allocate memory_of_backend(const comm::Communicator& communicator) {
  if (communicator.device().type() != c10::DeviceType::CPU) return nullptr;
  const auto backend = communicator.process_group()->getBackend(c10::DeviceType::CPU);
  if (!backend->supportsTensorAlloc(c10::DeviceIndex(-1))) return nullptr;
  return [backend](size_t bytes) { return backend->allocateTensor(static_cast<int64_t>(bytes), at::kByte); };
}

}  // namespace

// The Reducer takes one hook for its whole life; this is where it finds the one of the moment.
struct DistributedDataParallel::HookPlace final : c10d::CommHookInterface {
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    failed = true;
    auto future = hook->runHook(bucket);
    failed = false;
    return future;
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return hook->parseHookResult(result); }

  CommHookPtr hook;
  bool failed = false;  // the Reducer waits for a bucket that will not come
};

namespace {

// The Reducer owns what it is given.
class SharedHook final : public c10d::CommHookInterface {
 public:
  explicit SharedHook(CommHookPtr hook) : hook_(std::move(hook)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override { return hook_->runHook(bucket); }
  at::Tensor parseHookResult(const c10::IValue& result) override { return hook_->parseHookResult(result); }

 private:
  CommHookPtr hook_;
};

// The numbers that the Reducer lists when parameters got no gradient; none for its other errors.
std::vector<size_t> parameters_without_gradient(const std::string& message) {
  constexpr std::string_view kBefore = "did not receive grad for rank ";
  const size_t found = message.find(kBefore);
  if (found == std::string::npos) return {};
  const size_t begin = message.find(':', found);
  std::istringstream listed(message.substr(begin, message.find('\n', begin) - begin));
  std::vector<size_t> numbers;
  for (char separator = 0; listed.get(separator);) {
    if (size_t number = 0; std::isdigit(listed.peek()) != 0 && listed >> number) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(nn::ModulePtr module, std::shared_ptr<comm::Communicator> communicator,
                                                 const DdpSettings& options)
    : Module("DistributedDataParallel"),
      module_(std::move(module)),
      communicator_(std::move(communicator)),
      options_(options),
      hook_(std::make_shared<HookPlace>()) {
  bucket_bytes(options_.bucket_cap_mb);  // refused ahead of the collectives
  hook_->hook = make_comm_hook(options_, communicator_->process_group());
  add_child("module", module_);
  start_alike(*module_, *communicator_);
  for (const auto& [name, buffer] : module_->named_buffers()) buffers_.push_back(buffer);
  make_reducer();
}

DistributedDataParallel::~DistributedDataParallel() {
  try {
    reducer_.reset();
    logger_.reset();  // the last owner of the Reducer, whose destructor may throw
  } catch (const std::exception&) {
    // Nothing can be done about a bucket in flight.
  }
}

std::vector<std::pair<std::string, at::Tensor>> DistributedDataParallel::trainable_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> trainable;
  for (const auto& [name, parameter] : module_->named_parameters())
    if (parameter.requires_grad()) trainable.emplace_back(name, parameter);
  return trainable;
}

void DistributedDataParallel::make_reducer(std::vector<std::vector<size_t>> buckets) {
  std::vector<at::Tensor> parameters;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, parameter] : trainable_parameters()) {
    names[parameters.size()] = name;
    parameters.push_back(parameter);
  }
  if (parameters.empty()) return;  // nothing to average
  const int64_t cap = bucket_bytes(options_.bucket_cap_mb);
  const std::vector<bool> sparse(parameters.size(), false);
  if (buckets.empty()) {
    const std::vector<size_t> limits{static_cast<size_t>(std::min(kFirstBucketBytes, cap)), static_cast<size_t>(cap)};
    buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits, sparse, {}, {}));
    std::reverse(buckets.begin(), buckets.end());  // gradients come in about the reverse order of use
  }
  const kernels::TensorMemorySource buckets_in_shared_memory(memory_of_backend(*communicator_));
  reducer_ =
      std::make_shared<c10d::Reducer>(parameters, buckets, communicator_->process_group(), sparse, cap,
                                      options_.find_unused_parameters, options_.gradient_as_bucket_view, names,
                                      std::min(kFirstBucketBytes, cap), /*skip_all_reduce_unused_params=*/false,
                                      /*use_python_reducer=*/false, std::vector<int64_t>{}, /*batched_grad_copy=*/false
#if ACCEL_TORCH_REDUCER_LAZY_BUCKETS
                                      ,
                                      /*lazy_bucket_allocation=*/false
#endif
      );
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  reducer_->register_comm_hook(std::make_unique<SharedHook>(hook_));
  if (options_.static_graph) reducer_->set_static_graph();
  static_graph_recorded_ = false;
}

bool DistributedDataParallel::set_gradient_sync(bool sync) { return std::exchange(sync_, sync); }

void DistributedDataParallel::expect_backward() {
  if (reducer_ != nullptr && !local_) reducer_->prepare_for_backward({});
}

void DistributedDataParallel::rebuild_buckets() {
  if (!reducer_->should_rebuild_buckets()) return;
  const kernels::TensorMemorySource buckets_in_shared_memory(memory_of_backend(*communicator_));
  reducer_->rebuild_buckets();
}

void DistributedDataParallel::synchronize_buffers(int from) {
  if (options_.broadcast_buffers && former_forward_synced_) broadcast_tensors(buffers_, from, *communicator_);
}

CommHookPtr DistributedDataParallel::set_comm_hook(CommHookPtr hook) {
  return std::exchange(hook_->hook, std::move(hook));
}

c10::IValue DistributedDataParallel::hook_state() const {
  const state::Stateful* const memory = memory_of(hook_->hook);
  if (memory == nullptr || reducer_ == nullptr) return {};
  std::unordered_map<const c10::TensorImpl*, int64_t> places;
  for (const auto& [name, parameter] : trainable_parameters())
    places.emplace(parameter.unsafeGetTensorImpl(), static_cast<int64_t>(places.size()));
  auto buckets = tree::new_list();
  for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    auto parameters = tree::new_list();
    for (const at::Tensor& parameter : bucket.getParameters())
      parameters.push_back(places.at(parameter.unsafeGetTensorImpl()));
    buckets.push_back(parameters);
  }
  auto state = tree::new_map();
  state.insert("buckets", buckets);
  state.insert("memory", memory->state_dict());
  return state;
}

void DistributedDataParallel::load_hook_state(const c10::IValue& saved) {
  state::Stateful* const memory = memory_of(hook_->hook);
  if (memory == nullptr || reducer_ == nullptr) return;
  if (saved.isNone()) return memory->load_state_dict(saved);
  const auto map = saved.toGenericDict();
  std::vector<bool> seen(trainable_parameters().size(), false);
  std::vector<std::vector<size_t>> buckets;
  const c10::IValue saved_buckets = map.at("buckets");
  for (const c10::IValue& bucket : saved_buckets.toListRef()) {
    buckets.emplace_back();
    for (const c10::IValue& item : bucket.toListRef()) {
      const auto place = static_cast<size_t>(item.toInt());
      require(place < seen.size() && !seen[place], Status::kCorrupt, "the saved buckets of gradients have parameter ",
              place, " of ", seen.size(), " in a wrong place; expected those of the same model");
      seen[place] = true;
      buckets.back().push_back(place);
    }
  }
  require(std::find(seen.begin(), seen.end(), false) == seen.end(), Status::kCorrupt,
          "the saved buckets of gradients lack parameters of the model; expected those of the same model");
  memory->load_state_dict(map.at("memory"));
  make_reducer(std::move(buckets));
}

// The sequence around a forward is that of the reference's wrapper: a bucket that is rebuilt must be so before memory
// peaks, and buffers travel only when the former step exchanged gradients.
c10::IValue DistributedDataParallel::forward(const nn::Inputs& inputs) {
  try {
    return forward_and_prepare(inputs);
  } catch (const c10::Error& error) {
    explain_missing_gradients(error.what_without_backtrace());
    throw;
  }
}

void DistributedDataParallel::explain_missing_gradients(const std::string& message) const {
  constexpr size_t kMostNames = 10;
  const std::vector<size_t> missing = parameters_without_gradient(message);
  if (missing.empty()) return;
  const auto parameters = trainable_parameters();
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kMostNames); i++)
    names += text(i == 0 ? "" : ", ", missing[i] < parameters.size() ? parameters[missing[i]].first : "?");
  if (missing.size() > kMostNames) names += text(" and ", missing.size() - kMostNames, " more");
  fail(
      Status::kInvalidState, "the former backward gave no gradient to ", missing.size(), " of ", parameters.size(),
      " trainable parameters: ", names,
      "; expected each to take part in the loss: set find_unused_parameters, or let those that are not trained require "
      "no gradient");
}

c10::IValue DistributedDataParallel::forward_and_prepare(const nn::Inputs& inputs) {
  if (hook_->failed) {
    hook_->failed = false;
    make_reducer();
  }
  const bool recording = reducer_ != nullptr && at::GradMode::is_enabled();
  int source = 0;
  if (uneven_inputs_ != nullptr) source = uneven_inputs_->announce(*this, {recording, recording && exchanges()});
  if (recording && exchanges()) reducer_->prepare_for_forward();
  if (recording) rebuild_buckets();
  synchronize_buffers(source);
  c10::IValue output = module_->call(inputs);
  former_forward_synced_ = at::GradMode::is_enabled() && exchanges();
  if (!recording) return output;
  return after_forward(std::move(output));
}

// The collectives of forward() and of the backward that follows, in their order, with gradients of 0.
void DistributedDataParallel::shadow(const ForwardNotice& others, int source) {
  if (others.records) rebuild_buckets();
  synchronize_buffers(source);
  former_forward_synced_ = others.exchanges;
  if (!others.exchanges) return;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> exchanged;
  for (c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/true))
    exchanged.push_back(reducer_->run_comm_hook(bucket));
  if (options_.find_unused_parameters && !options_.static_graph) {
    at::Tensor used = reducer_->get_local_used_map_on_device();
    communicator_->all_reduce(used, comm::Reduction::kSum);
  }
  for (const auto& future : exchanged) {
    future->waitAndThrow();
    hook_->parseHookResult(future->value());  // hooks may have collectives there too
  }
  reducer_->push_rebuilt_params_for_all_indices();
}

c10::IValue DistributedDataParallel::after_forward(c10::IValue output) {
  const bool search = options_.find_unused_parameters && !options_.static_graph;
  if (exchanges()) {
    std::vector<at::Tensor> outputs;
    if (search) tree::for_each_tensor(output, [&](const at::Tensor& tensor) { outputs.push_back(tensor); });
    reducer_->prepare_for_backward(outputs);
  }
  const bool delay = options_.static_graph && !static_graph_recorded_;
  if (!search && !delay) return output;
  static_graph_recorded_ = options_.static_graph;
  return pass_through_sink(output, reducer_, delay);
}

}  // namespace accel::parallel
