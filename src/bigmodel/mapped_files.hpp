// SPDX-License-Identifier: Apache-2.0
// Mapped files that hold the weights of a model. They must not change while the model uses them: a forward whose
// weights have changed is an error, not a wrong result.
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::bigmodel {

class MappedFiles {
 public:
  // The file that the tensor's memory is a mapping of, if it is one.
  void add(const at::Tensor& tensor);
  bool empty() const { return files_.empty(); }

  // kIo if a file was changed in place while its mapping is in use. One that was replaced or removed is still mapped as
  // it was.
  void check() const;

 private:
  struct File {
    std::string path;
    struct stat opened;
    const void* address;  // in the mapping
  };
  std::vector<File> files_;
};

// For a model that keeps mapped weights and has no hooks of offload: checks its files in each forward. Pages that were
// cut off are an error after it.
void watch_mapped_files(nn::Module& model, MappedFiles files);

}  // namespace accel::bigmodel
