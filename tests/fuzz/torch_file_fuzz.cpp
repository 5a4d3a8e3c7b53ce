// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of torch.save(), of either layout: an error that names the file, or a value whose tensors can be
// read.
#include <ATen/core/Tensor.h>

#include "base/error.hpp"
#include "bytes_file.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "fuzz_target.hpp"
#include "tensor/tree.hpp"

namespace torch_file_fuzz {

using namespace accel;

FUZZ_TARGET(torch_file) {
  const BytesFile file(data, size);
  try {
    const c10::IValue value = checkpoint::read_torch_file(std::make_shared<const MappedFile>(file.path()));
    tree::for_each_tensor(value, [](const at::Tensor& tensor) {
      constexpr int64_t kMostElements = 4096;  // one element may stand for many
      if (tensor.numel() > 0 && tensor.numel() <= kMostElements) tensor.clone();
    });
  } catch (const Error& error) {
    check(error.status() == Status::kCorrupt || error.status() == Status::kUnsupported);
    check(error.message().find('\'') != std::string::npos && error.message().find('\n') == std::string::npos);
  }
  return 0;
}

}  // namespace torch_file_fuzz
