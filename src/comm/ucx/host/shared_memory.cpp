#include "comm/ucx/host/shared_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {

SharedMemory::Segment::Segment(uint64_t number, FileDescriptor file, size_t size, int rank)
    : number(number), file(std::move(file)), memory(this->file.number(), size, rank) {}

at::Tensor SharedMemory::allocate(int64_t numel, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(numel, 1)) * options.dtype().itemsize();
  const size_t size = round_up(bytes, kPage);
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
  return at::from_blob(
      data, {numel}, [segment = std::move(segment)](void*) {}, options);
}

RemoteAddress SharedMemory::remote_address(const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RemoteAddress address;
  address.oldest = last_ + 1;
  const auto* const start = static_cast<const char*>(data);
  size_t kept = 0;
  for (auto& entry : segments_) {
    const auto segment = entry.lock();
    if (!segment) continue;
    segments_[kept++] = entry;
    address.oldest = std::min(address.oldest, segment->number);
    const char* const first = segment->memory.data();
    if (start < first || start + bytes > first + segment->memory.size()) continue;
    address.segment = segment->number;
    address.size = segment->memory.size();
    address.offset = static_cast<uint64_t>(start - first);
    address.descriptor = segment->file.number();
    address.is_new = segment->was_shown ? 0 : 1;
  }
  segments_.resize(kept);
  return address;
}

void SharedMemory::set_shown(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : segments_)
    if (const auto segment = entry.lock(); segment && segment->number == number) segment->was_shown = true;
}

std::shared_ptr<char> SharedMemory::map(int peer, int process, const RemoteAddress& address) {
  const auto first = mapped_.lower_bound({peer, 0});
  mapped_.erase(first, mapped_.lower_bound({peer, address.oldest}));
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
