// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/host_ring.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "tensor/device/device_work.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::tensor {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLargestChunk = size_t{256} << 20;
constexpr size_t kOrdinaryChunk = size_t{16} << 20;

thread_local HostRing* ring_of_thread = nullptr;

// A power of two: LibTorch rounds page-locked memory up to one. 0: none.
size_t chunk_within(size_t bytes) {
  size_t chunk = kPage;
  if (bytes < chunk) return 0;
  while (2 * chunk <= bytes && chunk < kLargestChunk) chunk *= 2;
  return chunk;
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto begin = tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
  return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(tensor.device()))
      .set_(tensor.storage(), begin, {static_cast<int64_t>(tensor.nbytes())}, {1});
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_conj() && !tensor.is_neg();
}

// The copies under way, of each chunk. Their memory is not let go before they have ended, also when the read fails.
class CopiesUnderWay {
 public:
  explicit CopiesUnderWay(c10::Device device) : device_(device) {}
  ~CopiesUnderWay() {
    for (size_t i = 0; i < ends_.size(); i++) try {
        wait(i);
      } catch (const c10::Error&) {  // the device is lost, which the read has said, and its copies have ended with it
      }
  }
  CopiesUnderWay(const CopiesUnderWay&) = delete;
  CopiesUnderWay& operator=(const CopiesUnderWay&) = delete;

  void begin(size_t chunk) {
    ends_[chunk].emplace(device_.type());
    ends_[chunk]->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  void wait(size_t chunk) {
    if (!ends_[chunk]) return;
    const std::optional<c10::Event> end = std::exchange(ends_[chunk], std::nullopt);
    end->synchronize();
  }

 private:
  const c10::Device device_;
  std::array<std::optional<c10::Event>, HostRing::kChunks> ends_;
};

}  // namespace

HostRing::HostRing(size_t bytes)
    : chunk_bytes_(chunk_within(std::min(bytes, kMostBytes) / kChunks)), former_(std::exchange(ring_of_thread, this)) {}

HostRing::~HostRing() { ring_of_thread = former_; }

at::Tensor& HostRing::chunk(size_t number, size_t bytes, bool page_locked) {
  at::Tensor& chunk = chunks_[number];
  if (!chunk.defined())
    chunk =
        empty_on_host({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(page_locked));
  return chunk;
}

void HostRing::read(const at::Tensor& tensor, const VisitBytes& visit) {
  const c10::Device device = tensor.device();
  const c10::DeviceGuard on_device(device);
  const at::Tensor bytes = bytes_of(tensor);
  const bool page_locked = chunk_bytes_ > 0 && can_pin(device.type());
  const size_t most = chunk_bytes_ > 0 ? chunk_bytes_ : kOrdinaryChunk, total = tensor.nbytes();
  const size_t ahead = page_locked ? kChunks - 1 : 0;
  const auto part = [&](size_t index) {
    at::Tensor& memory = chunk(index % (ahead + 1), most, page_locked);
    return memory.narrow(0, 0, static_cast<int64_t>(std::min(most, total - index * most)));
  };
  CopiesUnderWay copies(device);
  size_t begun = 0;
  for (size_t index = 0; index * most < total; index++) {
    for (; begun <= index + ahead && begun * most < total; begun++) {
      const at::Tensor to = part(begun);
      to.copy_(bytes.narrow(0, static_cast<int64_t>(begun * most), to.numel()), /*non_blocking=*/page_locked);
      if (page_locked) copies.begin(begun % kChunks);
    }
    copies.wait(index % kChunks);
    const at::Tensor taken = part(index);
    visit(static_cast<const char*>(taken.const_data_ptr()), taken.nbytes());
  }
}

void read_on_host(const at::Tensor& tensor, const VisitBytes& visit) {
  if (tensor.nbytes() == 0) return;
  if (tensor.is_cpu()) return visit(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  if (ring_of_thread != nullptr) return ring_of_thread->read(tensor, visit);
  HostRing(std::min(HostRing::kDefaultBytes, std::max(HostRing::kLeastBytes, 2 * tensor.nbytes()))).read(tensor, visit);
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  if (!is_dense(tensor)) return tensor.to(at::kCPU);
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  char* to = static_cast<char*>(copy.mutable_data_ptr());
  read_on_host(tensor, [&to](const char* data, size_t size) {
    std::memcpy(to, data, size);
    to += size;
  });
  return copy;
}

}  // namespace accel::tensor
