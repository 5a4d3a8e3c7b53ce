// SPDX-License-Identifier: Apache-2.0
#include "accelerator/replicas/tensor_digest.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "kernels/parallel.hpp"

namespace accel::accelerator {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;       // of the host's memory, for one thread
constexpr int64_t kDeviceWords = int64_t{1} << 22;    // that a device reduces at once: each takes temporary memory
constexpr int64_t kOddFactor = -7046029254386353131;  // 2^64 divided by the golden ratio: spreads consecutive numbers

// The digest of the digests of a tensor's parts, behind its shape and dtype.
Digest128 digest_of_parts(const at::Tensor& tensor, const std::vector<Digest128>& parts) {
  std::vector<uint64_t> numbers{static_cast<uint64_t>(tensor.scalar_type())};
  for (const int64_t size : tensor.sizes()) numbers.push_back(static_cast<uint64_t>(size));
  for (const Digest128& part : parts) numbers.insert(numbers.end(), {part.low, part.high});
  return kernels::digest128(numbers.data(), numbers.size() * sizeof(uint64_t));
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_meta() && tensor.has_storage() &&
         tensor.numel() > 0;
}

struct HostChunk {
  size_t tensor;
  const char* data;
  size_t size;
};

// A tensor whose elements are in order is read where it is; another one is copied.
class HostTensors {
 public:
  void add(size_t index, at::Tensor tensor) {
    tensor = tensor.contiguous();
    const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
    for (size_t begin = 0; begin < tensor.nbytes(); begin += kChunkBytes)
      chunks_.push_back({index, data + begin, std::min(kChunkBytes, tensor.nbytes() - begin)});
    tensors_.push_back(std::move(tensor));
  }

  void digest(std::vector<std::vector<Digest128>>& parts) const {
    std::vector<Digest128> digests(chunks_.size());
    kernels::parallel_for_each(chunks_.size(),
                               [&](size_t i) { digests[i] = kernels::digest128(chunks_[i].data, chunks_[i].size); });
    for (size_t i = 0; i < chunks_.size(); i++) parts[chunks_[i].tensor].push_back(digests[i]);
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<HostChunk> chunks_;
};

// All devices work before the first sum is read, which is one copy from each.
class DeviceSums {
 public:
  void add(size_t index, const at::Tensor& tensor) {
    of_devices_[tensor.device()].push_back({index, sum_words(tensor)});
  }

  void digest(std::vector<std::vector<Digest128>>& parts) const {
    for (const auto& [device, sums] : of_devices_) {
      std::vector<at::Tensor> all;
      for (const Sums& one : sums) all.push_back(one.values);
      const at::Tensor on_host = at::cat(all).cpu();
      const auto* next = on_host.const_data_ptr<int64_t>();
      for (const Sums& one : sums)
        for (const auto* const end = next + one.values.numel(); next != end; next += 2)
          parts[one.index].push_back({static_cast<uint64_t>(next[0]), static_cast<uint64_t>(next[1])});
    }
  }

 private:
  struct Sums {
    size_t index;
    at::Tensor values;
  };
  std::unordered_map<c10::Device, std::vector<Sums>> of_devices_;
};

}  // namespace

at::Tensor sum_words(const at::Tensor& tensor) {
  at::Tensor bytes = tensor.detach().contiguous().view({-1}).view(at::kByte);
  if (bytes.storage_offset() % static_cast<int64_t>(sizeof(int64_t)) != 0) bytes = bytes.clone();
  const int64_t rest = bytes.numel() % static_cast<int64_t>(sizeof(int64_t));
  if (rest != 0) {  // padding; the shape is in the digest too
    const auto missing = static_cast<int64_t>(sizeof(int64_t)) - rest;
    bytes = at::cat({bytes, at::zeros({missing}, bytes.options())});
  }
  const at::Tensor words = bytes.view(at::kLong);
  const at::Tensor factors =
      at::arange(1, std::min(words.numel(), kDeviceWords) + 1, words.options()).mul_(kOddFactor).bitwise_or_(1);
  std::vector<at::Tensor> sums;
  for (int64_t begin = 0; begin < words.numel(); begin += kDeviceWords) {
    const at::Tensor block = words.narrow(0, begin, std::min(kDeviceWords, words.numel() - begin));
    const at::Tensor own = factors.narrow(0, 0, block.numel());
    const at::Tensor products = block * own;
    sums.push_back(products.sum());
    // The high half of a product depends on all bits of the word: two sums miss what one may.
    sums.push_back((products.bitwise_right_shift(32).bitwise_xor_(block)).mul_(own).sum());
  }
  return at::stack(sums);
}

std::vector<Digest128> digest_tensors(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<Digest128>> parts(tensors.size());
  HostTensors on_host;
  DeviceSums on_devices;
  for (size_t i = 0; i < tensors.size(); i++) {
    if (!has_memory(tensors[i])) continue;
    if (tensors[i].is_cpu())
      on_host.add(i, tensors[i].detach());
    else
      on_devices.add(i, tensors[i]);
  }
  on_host.digest(parts);
  on_devices.digest(parts);
  std::vector<Digest128> digests(tensors.size());
  for (size_t i = 0; i < tensors.size(); i++)
    if (tensors[i].defined()) digests[i] = digest_of_parts(tensors[i], parts[i]);
  return digests;
}

}  // namespace accel::accelerator
