// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/shared_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kEndBytes = 64;  // of each segment, behind the tensor: whether it is freed

std::atomic<uint32_t>& freed_mark(const Mapping& memory) {
  return *reinterpret_cast<std::atomic<uint32_t>*>(memory.data() + memory.size() - kEndBytes);
}

}  // namespace

SharedMemory::Segment::Segment(uint64_t number, FileDescriptor file, size_t size, int rank)
    : number(number), file(std::move(file)), memory(this->file.number(), size, rank) {}

at::Tensor SharedMemory::allocate(int64_t numel, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(numel, 1)) * options.dtype().itemsize();
  const size_t size = round_up(bytes + kEndBytes, kPage);
  FileDescriptor file(memfd_create("accel", MFD_CLOEXEC));
  if (!file.is_open() || ftruncate(file.number(), static_cast<off_t>(size)) != 0)
    refuse_memory(rank_, "reserved", size);
  std::shared_ptr<Segment> segment;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    segment = std::make_shared<Segment>(++last_, std::move(file), size, rank_);
    segments_.push_back(segment);
  }
  char* const data = segment->memory.data();
  const auto let_go = [segment = std::move(segment)](void*) { freed_mark(segment->memory).store(1); };
  return at::from_blob(data, {numel}, let_go, options);
}

RemoteAddress SharedMemory::remote_address(const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RemoteAddress address;
  const auto* const start = static_cast<const char*>(data);
  size_t kept = 0;
  for (auto& entry : segments_) {
    const auto segment = entry.lock();
    if (!segment) continue;
    segments_[kept++] = entry;
    const char* const first = segment->memory.data();
    if (start < first || start + bytes > first + segment->memory.size() - kEndBytes) continue;
    address.segment = segment->number;
    address.size = segment->memory.size();
    address.offset = static_cast<uint64_t>(start - first);
    address.descriptor = segment->file.number();
    address.is_new = segment->was_shown ? 0 : 1;
  }
  segments_.resize(kept);
  address.freed = last_ - kept;
  return address;
}

void SharedMemory::set_shown(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : segments_)
    if (const auto segment = entry.lock(); segment && segment->number == number) segment->was_shown = true;
}

std::shared_ptr<char> SharedMemory::map(int peer, int process, const RemoteAddress& address) {
  if (uint64_t& freed = freed_[peer]; freed != address.freed) {
    for (auto entry = mapped_.begin(); entry != mapped_.end();)
      entry = freed_mark(*entry->second).load() != 0 ? mapped_.erase(entry) : std::next(entry);
    freed = address.freed;
  }
  auto found = mapped_.find({peer, address.segment});
  if (found == mapped_.end()) {
    const FileDescriptor file = open_file_of(process, static_cast<int>(address.descriptor));
    if (!file.is_open()) refuse_memory(rank_, "opened", address.size);
    auto mapping = std::make_shared<Mapping>(file.number(), address.size, rank_);
    found = mapped_.try_emplace({peer, address.segment}, std::move(mapping)).first;
  }
  return {found->second, found->second->data() + address.offset};
}

}  // namespace accel::comm::ucx
