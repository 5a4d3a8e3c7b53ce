// SPDX-License-Identifier: Apache-2.0
// Memory of models in stages: a rank keeps the activations of the micro-batches in flight, and its own parts alone.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "config/generated/choices/cpu_kernels.hpp"
#include "config/generated/choices/cpu_memory.hpp"
#include "counted_memory.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_memory_test {

using namespace pipelined_model_tests;
using tests::CountedMemory;
using tests::memory_of;

constexpr int64_t kWidth = 64, kRowsOfPart = 128;
constexpr size_t kPairs = 40;  // of a layer and an activation in each stage

// Memory that LibTorch's own allocator reports.
void report_memory(StateSettings& settings, int /*rank*/) {
  settings.cpu_memory = CpuMemory::kDefault;
  settings.cpu_kernels = CpuKernels::kDefault;
}

nn::ModulePtr deep_model() {
  std::vector<nn::ModulePtr> parts;
  for (size_t pair = 0; pair < 2 * kPairs; pair++) {
    parts.push_back(std::make_shared<nn::Linear>(kWidth, kWidth, true));
    parts.push_back(std::make_shared<nn::Activation>("gelu"));
  }
  return std::make_shared<nn::Sequential>(parts);
}

// What the first stage keeps of a micro-batch.
int64_t bytes_of_activations() {
  const nn::ModulePtr model = deep_model();
  const nn::ModuleChain chain = model->chain();
  c10::IValue value = tree::new_tuple({at::ones({kRowsOfPart, kWidth})});
  return memory_of([&] {
           for (size_t part = 0; part < 2 * kPairs; part++) value = chain[part].call(value);
         })
      .now;
}

struct InFlight {
  std::string schedule;
  int64_t micro_batches, max_in_flight, kept;
};

void expect_memory(const AcceleratorPtr& accelerator, const InFlight& test, int64_t bytes) {
  SCOPED_TRACE(test.schedule + ", " + std::to_string(test.micro_batches));
  const nn::ModulePtr inner = deep_model();
  PrepareModelSettings settings;
  settings.pipeline.schedule = test.schedule;
  settings.pipeline.micro_batches = test.micro_batches;
  settings.pipeline.max_in_flight = test.max_in_flight;
  settings.pipeline.split = std::string("80,80");
  const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
  auto& prepared = dynamic_cast<accelerator::PreparedModel&>(*model);
  const int64_t rows = test.micro_batches * kRowsOfPart;
  const PipelineBatch batch{tree::new_tuple({at::ones({rows, kWidth})}), at::arange(rows) % kWidth};
  const auto step = [&] { accelerator->backward().run_in_stages(prepared, batch, cross_entropy()); };
  step();  // the gradients have memory from now on
  const int64_t peak = memory_of(step).peak;
  if (accelerator->state().process_index() == 0) {
    EXPECT_NEAR(static_cast<double>(peak), static_cast<double>(test.kept * bytes),
                0.05 * static_cast<double>(test.kept * bytes));
  }
  accelerator->free_memory();
}

TEST(PipelinedMemory, ARankKeepsTheMicroBatchesInFlight) {
  const int64_t bytes = bytes_of_activations();
  EXPECT_GE(bytes, static_cast<int64_t>(kPairs) * kRowsOfPart * kWidth * 4);
  on_mesh(
      stages(2),
      [&](const AcceleratorPtr& accelerator) {
        for (const InFlight& test : {InFlight{"gpipe", 4, 0, 4}, InFlight{"1f1b", 6, 0, 2}, InFlight{"1f1b", 6, 1, 1}})
          expect_memory(accelerator, test, bytes);
      },
      report_memory);
}

constexpr int64_t kGenerators = 1 << 14;  // bytes of their states

// A model whose head and embedding are large beside its blocks. Its parameters have no memory yet.
nn::ModulePtr empty_model() {
  const nn::CreationDevice scope(c10::Device(at::kMeta), /*include_buffers=*/false);
  return nn::module_from_config(R"({"model_type": "gpt2", "n_embd": 128, "n_layer": 8, "n_head": 4, "vocab_size": 3001,
      "n_positions": 64, "tie_word_embeddings": false})");
}

int64_t bytes_of_parameters(const nn::Module& model) {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : nn::named_parameters(model)) bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

int64_t largest_of(const nn::Module& model) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : model.parameters())
    bytes = std::max(bytes, static_cast<int64_t>(parameter.nbytes()));
  return bytes;
}

nn::ModulePtr prepare(const AcceleratorPtr& accelerator, const nn::ModulePtr& inner, const char* split) {
  PrepareModelSettings settings;
  settings.pipeline.split = std::string(split);
  return accelerator->preparation().prepare_model(inner, settings);
}

// An empty model is drawn part by part, and a checkpoint is read into what there is: nothing is there twice. One tensor
// of a part is, while its numbers are drawn, or read.
TEST(PipelinedMemory, ARankNeverHasMoreThanItsParts) {
  const checkpoint::tests::Folder folder;
  for (const char* split : {"parameters", "measured"})
    on_mesh(
        stages(2),
        [&](const AcceleratorPtr& accelerator) {
          SCOPED_TRACE(split);
          const nn::ModulePtr inner = empty_model();
          const int64_t whole = bytes_of_parameters(*inner), tensor = largest_of(*inner);
          nn::ModulePtr model;
          const CountedMemory prepared = memory_of([&] { model = prepare(accelerator, inner, split); });
          const int64_t own = bytes_of_parameters(*inner);
          EXPECT_LT(own, 0.7 * static_cast<double>(whole));
          const bool measures = std::string(split) == "measured" && accelerator->state().process_index() == 0;
          // The first rank measures a part after the other, with its gradients and activations.
          if (!measures) {
            EXPECT_LE(prepared.peak, own + tensor + kGenerators);
          }
          EXPECT_LE(prepared.now, own + own / 20);
          const std::string saved = folder / split;
          accelerator->checkpoints().save_state(saved);
          const CountedMemory loaded = memory_of([&] { accelerator->checkpoints().load_state(saved); });
          EXPECT_LE(loaded.peak, tensor + kGenerators);
          model = nullptr;
          accelerator->free_memory();
        },
        report_memory);
}

}  // namespace pipelined_memory_test
}  // namespace accel::parallel
