// SPDX-License-Identifier: Apache-2.0
#include "tensor/loading.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/parallel.hpp"
#include "machine/streaming_copy.hpp"
#include "os/mapped_file.hpp"

namespace accel::tensor {
namespace {

constexpr int64_t kLoadedBytes = int64_t{32} << 20;  // whose pages are in memory at once

thread_local bool loading = false;

// With the pages that are shared with neighbours in the file. The system may map 2 MiB for one byte that is read, so
// small tensors count too.
void forget_with_neighbours(const void* data, size_t size) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = address / page * page, end = (address + size + page - 1) / page * page;
  forget_pages(reinterpret_cast<const void*>(begin), end - begin);
}

void forget(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_non_overlapping_and_dense()) return;
  forget_with_neighbours(tensor.const_data_ptr(), tensor.nbytes());
}

// Whether copying means copying the bytes.
bool are_same_bytes(const at::Tensor& to, const at::Tensor& from) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_neg() &&
           !tensor.is_conj();
  };
  return to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() && is_plain(to) && is_plain(from);
}

// Copies bytes past the caches, on all threads: what is loaded is larger than these and not read soon, and the former
// values need not be read first. Many tensors make one batch, because threads that wait for each other after each are
// slow on a busy machine.
class ByteCopies {
 public:
  void add(const at::Tensor& to, const at::Tensor& from) {
    constexpr size_t kPart = size_t{256} << 10;
    auto* const target = static_cast<char*>(to.mutable_data_ptr());
    const auto* const source = static_cast<const char*>(from.const_data_ptr());
    if (targets_.count(target) > 0) run();  // one that has two names: the last one counts
    for (size_t begin = 0; begin < from.nbytes(); begin += kPart) {
      const size_t size = std::min(kPart, from.nbytes() - begin);
      parts_.push_back({target + begin, source + begin, size});
      targets_.insert(target);
      bytes_ += size;
      if (bytes_ >= static_cast<size_t>(kLoadedBytes)) run();
    }
    to.unsafeGetTensorImpl()->bump_version();
  }

  void run() {
    constexpr size_t kWorthThreads = size_t{1} << 20;
    const auto copy_part = [this](size_t i) { copy_streaming(parts_[i].to, parts_[i].from, parts_[i].size); };
    if (bytes_ >= kWorthThreads)
      kernels::parallel_for_each(parts_.size(), copy_part);
    else
      for (size_t i = 0; i < parts_.size(); i++) copy_part(i);
    for (size_t i = 0, first = 0; i < parts_.size(); i++) {  // each call costs as much as many pages
      const char* const end = parts_[i].from + parts_[i].size;
      if (i + 1 < parts_.size() && parts_[i + 1].from == end) continue;
      forget_with_neighbours(parts_[first].from, static_cast<size_t>(end - parts_[first].from));
      first = i + 1;
    }
    parts_.clear();
    targets_.clear();
    bytes_ = 0;
  }

 private:
  struct Part {
    char* to;
    const char* from;
    size_t size;
  };
  std::vector<Part> parts_;
  std::unordered_set<const char*> targets_;
  size_t bytes_ = 0;
};

// In chunks, if the tensor is large.
void convert_loaded(const at::Tensor& to, const at::Tensor& from) {
  const bool in_chunks =
      from.is_cpu() && static_cast<int64_t>(from.nbytes()) > kLoadedBytes && from.is_contiguous() && to.is_contiguous();
  if (!in_chunks) {
    to.copy_(from);
    forget(from);
    return;
  }
  const at::Tensor target = to.view({-1}), source = from.view({-1});
  const int64_t chunk = kLoadedBytes / static_cast<int64_t>(from.itemsize());
  for (int64_t begin = 0; begin < source.numel(); begin += chunk) {
    const int64_t end = std::min(begin + chunk, source.numel());
    target.slice(0, begin, end).copy_(source.slice(0, begin, end));
    forget(source.slice(0, begin, end));
  }
}

}  // namespace

LoadingScope::LoadingScope() : before_(std::exchange(loading, true)) {}

LoadingScope::~LoadingScope() { loading = before_; }

bool is_loading() { return loading; }

void copy_loaded(const LoadedCopies& copies) {
  ByteCopies of_bytes;
  for (const auto& [to, from] : copies) {
    if (!loading)
      to.copy_(from);
    else if (are_same_bytes(to, from))
      of_bytes.add(to, from);
    else
      convert_loaded(to, from);
  }
  of_bytes.run();
}

double loaded_number(const at::Tensor& tensor) {
  const double number = tensor.item<double>();
  if (loading) forget(tensor);
  return number;
}

}  // namespace accel::tensor
