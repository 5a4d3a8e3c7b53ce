// SPDX-License-Identifier: Apache-2.0
#include "nn/package/loaded_package.hpp"

#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <exception>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/first_line.hpp"
#include "nn/package/needed_library.hpp"
#include "os/linker_error.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::nn {
namespace {

bool says_no_memory(const std::exception& error) {
  return tensor::means_no_memory(error) || is_lack_of_memory(error.what());
}

// Checks that AOTInductor writes into its code have these words.
Status status_of(const std::string& message) {
  if (message.find("unmatched dtype") != std::string::npos) return Status::kTypeMismatch;
  return message.find("unmatched") != std::string::npos || message.find("dim value is too") != std::string::npos
             ? Status::kShapeMismatch
             : Status::kTorch;
}

}  // namespace

LoadedPackage::LoadedPackage(PackageFile& file, c10::Device device, int64_t concurrent_calls)
    : path_(file.path()), folder_(std::make_unique<TemporaryFolder>("accel-package")) {
  const std::string shared_object = file.extract(folder_->path());
  const auto makers = torch::inductor::getAOTIModelRunnerRegistry();
  const auto maker = makers.find(device.is_cpu() ? "cpu" : c10::DeviceTypeName(device.type(), /*lower_case=*/true));
  require(maker != makers.end(), Status::kUnsupported, "LibTorch runs no packages on the device ", device.type());
  const std::string folder = shared_object.substr(0, shared_object.rfind('/'));
  // It has no code, and names all libraries of a LibTorch for GPUs, of which programs load those that they use.
  if (device.is_cpu()) replace_needed_library(shared_object, "libtorch.so", "libtorch_cpu.so");
  try {
    runner_ = maker->second(shared_object, static_cast<size_t>(concurrent_calls), device.str(), folder,
                            /*run_single_threaded=*/false);
  } catch (const std::exception& error) {
    if (says_no_memory(error)) throw std::bad_alloc();
    fail(Status::kUnsupported, "the code of the package '", path_, "' cannot be loaded: ", first_line(error.what()),
         "; expected one that was made by this LibTorch, and a TMPDIR that allows to run programs");
  }
  const std::vector<std::string> trees = runner_->get_call_spec();
  require(trees.size() == 2, Status::kCorrupt, "the package '", path_, "' does not say what it takes and returns");
  inputs_ = CallTree::parse(trees[0], path_);
  outputs_ = CallTree::parse(trees[1], path_);
  require(inputs_.children().size() == 2, Status::kCorrupt, "the package '", path_, "' does not say what it takes");
  // Code for the CPU is mapped; that for GPUs reads its kernels when they are first used.
  if (device.is_cpu()) folder_.reset();
}

LoadedPackage::~LoadedPackage() = default;

std::vector<at::Tensor> LoadedPackage::run(const std::vector<at::Tensor>& tensors) {
  try {
    return runner_->run(tensors);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (says_no_memory(error)) throw std::bad_alloc();
    const std::string message = first_line(error.what());
    fail(status_of(error.what()), "the code of the package '", path_, "' fails: ", message);
  }
}

}  // namespace accel::nn
