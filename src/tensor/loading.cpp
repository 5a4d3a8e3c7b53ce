#include "tensor/loading.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/mapped_file.hpp"

namespace accel::tensor {
namespace {

constexpr int64_t kLoadedBytes = int64_t{16} << 20;  // whose pages are in memory at once

thread_local bool loading = false;

// With the pages that it shares with its neighbours in the file. The system may map 2 MiB for one byte that is read, so
// small tensors count too.
void forget(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_non_overlapping_and_dense()) return;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t begin = address / page * page, end = (address + tensor.nbytes() + page - 1) / page * page;
  forget_pages(reinterpret_cast<const void*>(begin), end - begin);
}

}  // namespace

LoadingScope::LoadingScope() : before_(std::exchange(loading, true)) {}

LoadingScope::~LoadingScope() { loading = before_; }

bool is_loading() { return loading; }

void copy_loaded(const at::Tensor& to, const at::Tensor& from) {
  const bool in_pieces = loading && from.is_cpu() && static_cast<int64_t>(from.nbytes()) > kLoadedBytes &&
                         from.is_contiguous() && to.is_contiguous();
  if (!in_pieces) {
    to.copy_(from);
    if (loading) forget(from);
    return;
  }
  const at::Tensor target = to.view({-1}), source = from.view({-1});
  const int64_t piece = kLoadedBytes / static_cast<int64_t>(from.itemsize());
  for (int64_t begin = 0; begin < source.numel(); begin += piece) {
    const int64_t end = std::min(begin + piece, source.numel());
    target.slice(0, begin, end).copy_(source.slice(0, begin, end));
    forget(source.slice(0, begin, end));
  }
}

double loaded_number(const at::Tensor& tensor) {
  const double number = tensor.item<double>();
  if (loading) forget(tensor);
  return number;
}

}  // namespace accel::tensor
