// SPDX-License-Identifier: Apache-2.0
// Code of a package in this process.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/package/call_tree.hpp"
#include "nn/package/package_file.hpp"
#include "os/temporary_folder.hpp"

namespace torch::inductor {
class AOTIModelContainerRunner;
}

namespace accel::nn {

class LoadedPackage {
 public:
  // Writes the files into a folder for temporary files, and has the dynamic linker load them. kUnsupported if it
  // cannot.
  LoadedPackage(PackageFile& file, c10::Device device, int64_t concurrent_calls);
  LoadedPackage(const LoadedPackage&) = delete;
  LoadedPackage& operator=(const LoadedPackage&) = delete;
  ~LoadedPackage();

  torch::inductor::AOTIModelContainerRunner& runner() { return *runner_; }
  const CallTree& inputs() const { return inputs_; }
  const CallTree& outputs() const { return outputs_; }

  // kTypeMismatch and kShapeMismatch where checks of the code refuse the tensors.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors);

 private:
  std::string path_;
  std::unique_ptr<TemporaryFolder> folder_;  // null once nothing reads it
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner_;
  CallTree inputs_, outputs_;
};

}  // namespace accel::nn
