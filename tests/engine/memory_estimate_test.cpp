// SPDX-License-Identifier: Apache-2.0
// The estimated memory of training is what ranks really take.
#include "accelerator/training_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <c10/core/CPUAllocator.h>
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/state/state.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "launch/ranks/claimed_port.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/callback_module.hpp"
#include "optim/rules/rules.hpp"
#include "os/file_descriptor.hpp"
#include "parallel/context/context_scope.hpp"

namespace accel::accelerator {
namespace memory_estimate_test {

class MemoryMeter;
std::atomic<MemoryMeter*> memory_meter{nullptr};

// All memory of tensors in this process: of LibTorch's allocator, which it replaces, of the caching allocator, and what
// it shares with other ranks. Its peak is seen where the first or the last is asked for memory.
class MemoryMeter final : public c10::Allocator {
 public:
  MemoryMeter() : former_(c10::GetCPUAllocator()) {
    memory_meter = this;
    c10::SetCPUAllocator(this, /*priority=*/1);
  }
  ~MemoryMeter() override {
    memory_meter = nullptr;
    c10::SetCPUAllocator(former_, /*priority=*/1);
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* const data = former_->raw_allocate(bytes);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      sizes_[data] = bytes;
      in_use_ += bytes;
    }
    constexpr size_t kLarge = 100000;
    if (bytes > kLarge) sample();
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void add_shared_file(int file) {
    struct stat status {};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fstat(file, &status) == 0) shared_files_.insert(status.st_ino);
  }

  size_t in_use() {
    const size_t shared = shared_memory_bytes();
    const std::lock_guard<std::mutex> lock(mutex_);
    return in_use_ + kernels::cpu_memory_statistics().in_use + shared;
  }
  void sample() {
    const size_t now = in_use();
    const std::lock_guard<std::mutex> lock(mutex_);
    peak_ = std::max(peak_, now);
  }
  void reset_peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    peak_ = 0;
  }
  size_t peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peak_;
  }

 private:
  using Sizes = std::map<ino_t, size_t>;

  static void free_block(void* data) {
    MemoryMeter* const meter = memory_meter;
    {
      const std::lock_guard<std::mutex> lock(meter->mutex_);
      const auto found = meter->sizes_.find(data);
      meter->in_use_ -= found->second;
      meter->sizes_.erase(found);
    }
    meter->former_->raw_deallocate(data);
  }

  // The open files of shared memory that this process made; while it maps those of other ranks, it has them open, too.
  Sizes list_shared_files() {
    Sizes files;
    DIR* const folder = opendir("/proc/self/fd");
    while (const dirent* const entry = readdir(folder)) {
      struct stat status {};
      if (stat((std::string("/proc/self/fd/") + entry->d_name).c_str(), &status) != 0) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      if (shared_files_.count(status.st_ino) != 0) files[status.st_ino] = static_cast<size_t>(status.st_size);
    }
    closedir(folder);
    return files;
  }

  // Files come and go while they are listed: two equal lists are one that was there.
  size_t shared_memory_bytes() {
    Sizes files = list_shared_files();
    for (Sizes again = list_shared_files(); again != files; again = list_shared_files()) files = std::move(again);
    size_t bytes = 0;
    for (const auto& [number, size] : files) bytes += size;
    return bytes;
  }

  c10::Allocator* const former_;
  std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;
  std::set<ino_t> shared_files_;
  size_t in_use_ = 0, peak_ = 0;
};

// The C library's function behind one of the same name here.
template <typename Function>
Function* next_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

constexpr int64_t kWidth = 1024;

nn::ModulePtr make_model(int blocks, c10::Device device) {
  const auto weight = [&](double value) {
    return at::full({kWidth, kWidth}, value, at::TensorOptions().dtype(at::kFloat).device(device));
  };
  auto model = std::make_shared<nn::CallbackModule>("Net");
  model->add_parameter("first", weight(0.001));
  for (int i = 0; i < blocks; i++) {
    const auto block = std::make_shared<nn::CallbackModule>("Block");
    block->add_parameter("up", weight(0.001));
    block->add_parameter("down", weight(0.002));
    block->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      return at::linear(at::linear(inputs[0].toTensor(), self.parameter(0)), self.parameter(1));
    });
    model->add_child("block" + std::to_string(i), block);
  }
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = at::linear(inputs[0].toTensor(), self.parameter(0));
    for (const auto& [name, child] : self.children()) x = child->call(x);
    return x;
  });
  return model;
}

struct Training {
  const char* name;
  EstimateMemorySettings settings = {};
  bool has_momentum = false;  // Adam's two, or plain SGD
  int blocks = 3;
  std::string config = {};  // of a language model in place of the blocks
};

nn::ModulePtr make_model(const Training& run, c10::Device device) {
  return run.config.empty() ? make_model(run.blocks, device) : nn::module_from_config(run.config);
}

// The loss of a micro-batch, of a language model with the vocabulary kVocabulary or more.
constexpr int64_t kVocabulary = 64;
at::Tensor loss_of(const Training& run, nn::Module& model, const Accelerator& accelerator) {
  if (run.config.empty()) return model.call(at::full({1, kWidth}, 0.5)).square().mean();
  const std::vector<int64_t> sizes = {run.settings.batch_size, run.settings.sequence_length};
  const at::Tensor tokens = at::arange(sizes[0] * sizes[1]).remainder(kVocabulary).view(sizes);
  std::optional<parallel::ContextScope> scope;
  if (run.settings.context_parallel_size > 1) {
    parallel::ContextParallelism split;
    split.group = accelerator.state().groups().mesh()->group("context");
    split.method = run.settings.model_options.context_parallel.method.value;
    if (split.method == ContextMethod::kUlysses) split.order = parallel::SequenceOrder::kContiguous;
    scope.emplace(split, std::vector<parallel::SplitBuffer>{{tokens, 1}});
  }
  return at::cross_entropy_loss(model.call(tokens).flatten(0, 1), tokens.flatten());
}

void PrintTo(const Training& run, std::ostream* out) { *out << run.name; }

std::shared_ptr<optim::ParameterOptimizer> make_optimizer(const Training& run) {
  return run.has_momentum ? optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 1e-5}})
                          : optim::make_optimizer(optim::sgd_rule(), {{"lr", 1e-5}});
}

constexpr const char* kRankVariable = "ACCEL_MEMORY_TEST_PIPE";  // where a rank writes its peak

StateSettings state_of(const EstimateMemorySettings& settings) {
  StateSettings state;
  state.cpu = true;
  state.mixed_precision = settings.mixed_precision.value;
  state.gradient_accumulation_steps = settings.gradient_accumulation_steps.value;
  state.sync_each_batch = settings.sync_each_batch.value;
  state.cpu_memory = CpuMemory::kDefault;
  state.cpu_kernels = CpuKernels::kDefault;
  state.tensor_parallel_size = settings.tensor_parallel_size.value;
  state.context_parallel_size = settings.context_parallel_size.value;
  if (const auto& shards = settings.data_parallel_shard_size.value) {
    state.data_parallel_shard_size = *shards;
    state.data_parallel_replicate_size = settings.num_processes / *shards;
  }
  return state;
}

double estimated_peak(const Training& run) {
  const auto estimate = estimate_memory(make_model(run, at::kMeta), make_optimizer(run).get(), run.settings);
  return static_cast<double>(estimate.peak.total());
}

// In the process of a rank: the bytes at the peak of the second and third step, beside those that were there before.
size_t peak_of_this_rank(const Training& run) {
  MemoryMeter meter;
  const auto accelerator = std::make_shared<Accelerator>(state_of(run.settings));
  comm::Communicator& all = *accelerator->state().communicator();
  for (const char* const axes : {"shard,context", "replicate"})
    accelerator->state().groups().mesh()->group(axes)->barrier();
  all.barrier();
  const size_t before = meter.in_use();
  const nn::ModulePtr inner = make_model(run, at::kCPU);
  const auto plain = make_optimizer(run);
  plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, run.settings.model_options);
  const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
  const auto estimate = estimate_memory(model, optimizer.get(), run.settings);
  EXPECT_EQ(static_cast<double>(estimate.peak.total()), estimated_peak(run)) << "of the prepared model";
  const int64_t micro_batches = run.settings.gradient_accumulation_steps;
  for (int64_t i = 0; i < 3 * micro_batches; i++) {
    if (i == micro_batches) meter.reset_peak();
    const MicroBatch micro(accelerator, {model});
    accelerator->backward().run(loss_of(run, *model, *accelerator));
    optimizer->step();
    optimizer->zero_grad(true);
  }
  const size_t peak = meter.peak() - before;
  accelerator->end_training();
  return peak;
}

// Runs this test in a process for each rank; the largest of their peaks.
double measured_peak(int ranks, const std::string& test) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const launch::ClaimedPort claimed;
  const std::string port = std::to_string(claimed.number()), filter = "--gtest_filter=" + test;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; rank++) {
    const std::string number = std::to_string(rank), size = std::to_string(ranks), end = std::to_string(ends[1]);
    const pid_t process = fork();
    if (process == 0) {
      const std::pair<const char*, const char*> variables[] = {
          {"RANK", number.c_str()},           {"WORLD_SIZE", size.c_str()}, {"LOCAL_RANK", number.c_str()},
          {"LOCAL_WORLD_SIZE", size.c_str()}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port.c_str()},
          {"OMP_NUM_THREADS", "1"},           {kRankVariable, end.c_str()}};
      for (const auto& [name, value] : variables) ::setenv(name, value, 1);
      ::close(ends[0]);
      ::execl("/proc/self/exe", "engine_tests", filter.c_str(), "--gtest_brief=1", nullptr);
      ::_exit(127);
    }
    processes.push_back(process);
  }
  writer.reset();
  std::vector<size_t> peaks;
  for (size_t peak = 0; ::read(reader.number(), &peak, sizeof peak) == sizeof peak;) peaks.push_back(peak);
  for (const pid_t process : processes) {
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  EXPECT_EQ(peaks.size(), static_cast<size_t>(ranks));
  return peaks.empty() ? 0 : static_cast<double>(*std::max_element(peaks.begin(), peaks.end()));
}

EstimateMemorySettings ranks_of(int ranks) {
  EstimateMemorySettings settings;
  settings.num_processes = ranks;
  return settings;
}

EstimateMemorySettings sharded(int ranks, ShardingStrategy strategy = ShardingStrategy::kFullShard) {
  EstimateMemorySettings settings = ranks_of(ranks);
  FsdpSettings& fsdp = settings.model_options.fsdp;
  fsdp.enabled = true;
  fsdp.sharding_strategy = strategy;
  fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  fsdp.transformer_cls_names_to_wrap = std::string("Block");
  return settings;
}

class MemoryEstimate : public testing::TestWithParam<Training> {};

// Regression: while the buckets of gradients were laid out again, in the second step, a rank had twice the memory of
// all gradients for them.
// Regression: in a sharded model's backward no group was gathered ahead of its use, because the model's own backward,
// around all others, counted as the last.
// Regression: the memory of training was measured with files of other ranks that were open for a moment.
TEST_P(MemoryEstimate, IsWhatARankTakes) {
  const Training& run = GetParam();
  if (const char* const end = std::getenv(kRankVariable)) {
    const size_t peak = peak_of_this_rank(run);
    ASSERT_EQ(::write(std::stoi(end), &peak, sizeof peak), static_cast<ssize_t>(sizeof peak));
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);  // blocks of the meter are freed by nobody
  }
  const std::string test =
      (run.config.empty() ? "Training" : "LanguageModel") + std::string("/MemoryEstimate.IsWhatARankTakes/") + run.name;
  const double measured = measured_peak(static_cast<int>(run.settings.num_processes.value), test);
  const double estimated = estimated_peak(run);
  constexpr double kMebibyte = 1 << 20;
  RecordProperty("estimated_mib", std::to_string(estimated / kMebibyte));
  RecordProperty("measured_mib", std::to_string(measured / kMebibyte));
  std::printf("%s %.1f %.1f\n", run.name, estimated / kMebibyte, measured / kMebibyte);
  EXPECT_GT(measured, 0);
  EXPECT_NEAR(estimated, measured, 0.1 * measured) << "MiB: " << estimated / kMebibyte << ", " << measured / kMebibyte;
}

using Settings = EstimateMemorySettings;

// Adam hides what else there is: most trainings have no states.
std::vector<Training> trainings() {
  const auto with = [](EstimateMemorySettings settings, const std::function<void(Settings&, FsdpSettings&)>& change) {
    change(settings, settings.model_options.fsdp);
    return settings;
  };
  const auto half = [](Settings& s, FsdpSettings&) { s.mixed_precision = Precision::kBf16; };
  const auto two_batches = [](Settings& s, FsdpSettings&) { s.gradient_accumulation_steps = 2; };
  const auto pairs = [](Settings& s, FsdpSettings&) { s.data_parallel_shard_size = 2; };
  const auto own = [](Settings& s, FsdpSettings&) { s.model_options.ddp.gradient_as_bucket_view = false; };
  const Settings full = sharded(2), grad_op = sharded(2, ShardingStrategy::kShardGradOp);
  return {
      {"one_process", ranks_of(1), true},
      {"data_parallel", ranks_of(2), true},
      {"data_parallel_sgd", ranks_of(2)},
      {"data_parallel_own_gradients", with(ranks_of(2), own)},
      {"data_parallel_accumulation", with(ranks_of(2), two_batches)},
      {"data_parallel_bf16", with(ranks_of(2), half)},
      {"full_shard", full, true},
      {"full_shard_sgd", full},
      {"full_shard_whole",
       with(full, [](Settings&, FsdpSettings& f) { f.auto_wrap_policy = AutoWrapPolicy::kNoWrap; })},
      {"forward_prefetch", with(full, [](Settings&, FsdpSettings& f) { f.forward_prefetch = true; })},
      {"post", with(full, [](Settings&, FsdpSettings& f) { f.backward_prefetch = BackwardPrefetch::kBackwardPost; })},
      {"no_prefetch",
       with(full, [](Settings&, FsdpSettings& f) { f.backward_prefetch = BackwardPrefetch::kNoPrefetch; })},
      {"unlimited", with(full, [](Settings&, FsdpSettings& f) { f.limit_all_gathers = false; })},
      {"full_shard_bf16", with(full, half)},
      {"full_shard_reduce_float32",
       with(with(full, half), [](Settings&, FsdpSettings& f) { f.reduce_dtype = std::string("float32"); })},
      {"full_shard_accumulation", with(full, two_batches)},
      {"full_shard_each_batch",
       with(with(full, two_batches), [](Settings& s, FsdpSettings&) { s.sync_each_batch = true; })},
      {"padded_rows", sharded(3)},
      {"reshard_in_pairs", with(sharded(4), [](Settings&, FsdpSettings& f) { f.reshard_group_size = 2; }), true},
      {"shard_grad_op", grad_op, true},
      {"shard_grad_op_sgd", grad_op},
      {"hybrid", with(sharded(4, ShardingStrategy::kHybridShard), pairs)},
      {"hybrid_zero2", with(sharded(4, ShardingStrategy::kHybridShardZero2), pairs)},
  };
}

INSTANTIATE_TEST_SUITE_P(Training, MemoryEstimate, testing::ValuesIn(trainings()),
                         [](const auto& info) { return std::string(info.param.name); });

// Language models whose activations take nearly all: at the peak there are also temporary tensors of one layer.
std::vector<Training> language_models() {
  const auto model = [](const char* name, int ranks, const std::function<void(Settings&)>& change = {}) {
    Training run{name, ranks_of(ranks)};
    run.config = R"({"model_type": "gpt2", "n_embd": 128, "n_layer": 8, "n_head": 4, "vocab_size": 64,
                  "n_positions": 512, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})";
    run.settings.batch_size = 4;
    run.settings.sequence_length = 256;
    if (change) change(run.settings);
    return run;
  };
  const auto split = [&](const char* name, const std::function<void(Settings&)>& change = {}) {
    return model(name, 2, [&](Settings& settings) {
      settings.tensor_parallel_size = 2;
      if (change) change(settings);
    });
  };
  const auto sequences = [](Settings& s) { s.model_options.tensor_parallel.sequence_parallel = true; };
  const auto with_method = [&](const char* name, ContextMethod method) {
    return model(name, 2, [method](Settings& settings) {
      settings.context_parallel_size = 2;
      settings.model_options.context_parallel.method = method;
    });
  };
  std::vector<Training> runs = {
      model("one_process", 1),
      model("dropout", 1),
      model("bf16", 1,
            [](Settings& settings) {
              settings.batch_size = 8;  // so that gradients, which come one after the other, are few beside the inputs
              settings.mixed_precision = Precision::kBf16;
            }),
      model("fp8", 1,
            [](Settings& settings) {
              settings.batch_size = 16;  // so that temporary tensors of a layer are few beside what is kept
              settings.mixed_precision = Precision::kFp8;
            }),
      model("full_shard_fp8", 2,
            [](Settings& settings) {
              const int64_t batch = 1, length = 128;  // parameters are most of the memory
              settings = sharded(2);
              settings.model_options.fsdp.transformer_cls_names_to_wrap = std::string("GPT2Block");
              settings.batch_size = batch;
              settings.sequence_length = length;
              settings.mixed_precision = Precision::kFp8;
            }),
      split("tensor"),
      split("sequence", sequences),
      split("sequence_kept",
            [&](Settings& settings) {
              sequences(settings);
              settings.model_options.tensor_parallel.regather_inputs = false;
            }),
      split("loss", [](Settings& settings) { settings.model_options.tensor_parallel.loss_parallel = true; }),
      split("recompute",
            [](Settings& settings) {
              settings.batch_size = 16;  // so that gradients, which come one after the other, are few beside the inputs
              FsdpSettings& fsdp = settings.model_options.fsdp;
              fsdp.enabled = true;
              fsdp.activation_checkpointing = true;
              fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
              fsdp.transformer_cls_names_to_wrap = std::string("GPT2Block");
            }),
      with_method("all_gather", ContextMethod::kAllGather),
      with_method("ring", ContextMethod::kRing),
      with_method("ulysses", ContextMethod::kUlysses),
      split("llama"),
  };
  for (Training& run : runs) {
    const std::string name = run.name;
    run.has_momentum = name == "tensor";
    const auto replace = [&run](const std::string& from, const std::string& to) {
      run.config.replace(run.config.find(from), from.size(), to);
    };
    if (name == "dropout") replace("\"resid_pdrop\": 0", "\"resid_pdrop\": 0.1");
    if (name == "fp8") replace("\"n_layer\": 8", "\"n_layer\": 16");
    if (name == "full_shard_fp8") replace("\"n_embd\": 128", "\"n_embd\": 512");
    if (name == "loss") replace("\"vocab_size\": 64", "\"vocab_size\": 2048");
    if (name == "llama")
      run.config = R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 8,
                    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 64})";
  }
  return runs;
}

INSTANTIATE_TEST_SUITE_P(LanguageModel, MemoryEstimate, testing::ValuesIn(language_models()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace memory_estimate_test
}  // namespace accel::accelerator

// Memory that ranks share is a file of these two functions.
extern "C" __attribute__((visibility("default"))) int memfd_create(const char* name, unsigned int flags) noexcept {
  using namespace accel::accelerator::memory_estimate_test;
  const int file = next_function<int(const char*, unsigned int)>("memfd_create")(name, flags);
  if (MemoryMeter* const meter = memory_meter) meter->add_shared_file(file);
  return file;
}

extern "C" __attribute__((visibility("default"))) int ftruncate(int file, off_t size) noexcept {
  using namespace accel::accelerator::memory_estimate_test;
  const int status = next_function<int(int, off_t)>("ftruncate")(file, size);
  if (MemoryMeter* const meter = memory_meter) meter->sample();
  return status;
}
