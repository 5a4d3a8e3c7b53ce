// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers of a package as a tree of modules, which has the memory that the code reads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/module.hpp"
#include "nn/package/loaded_package.hpp"

namespace accel::nn {

class PackageConstants {
 public:
  // Adds them below `root`, which lives as long as this. `description` is what accel compile wrote; may be null.
  PackageConstants(std::shared_ptr<LoadedPackage> package, Module& root, const Json& description,
                   const std::string& source);

  // Gives the code those that have other memory or values than at the last call. kUnsupported for another dtype,
  // device or layout.
  void refresh();

 private:
  struct Constant {
    std::string code_name;  // in the code
    std::string path;
    const Module* owner;
    size_t index;
    bool is_buffer;
    at::Tensor original;  // as the code expects it; not the tensor of the module, which may become another kind
    at::Tensor given;     // the code refers to it
    const void* memory = nullptr;
    uint64_t version = 0;

    const at::Tensor& now() const { return is_buffer ? owner->buffer(index) : owner->parameter(index); }
  };

  void add(Module& root, const std::string& code_name, const std::string& path, const at::Tensor& tensor,
           bool is_buffer, bool is_persistent);
  void tie(Module& root, const Json& description);
  void check(const Constant& constant) const;

  std::shared_ptr<LoadedPackage> package_;
  std::string source_;
  std::vector<Constant> constants_;
  std::mutex mutex_;
};

}  // namespace accel::nn
