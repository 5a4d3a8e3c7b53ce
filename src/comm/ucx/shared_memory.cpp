#include "comm/ucx/shared_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/huge_pages.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {
namespace {

[[noreturn]] void refuse(int rank, const char* what, size_t bytes) {
  const bool no_memory = errno == ENOMEM || errno == ENOSPC;
  throw CollectiveError(
      no_memory ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend, rank,
      text(bytes, " bytes of shared memory could not be ", what, " on rank ", rank, ": ", std::strerror(errno)));
}

}  // namespace

Mapping::Mapping(int descriptor, size_t size, int rank) : size_(size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) refuse(rank, "mapped", size);
  ask_for_huge_pages(memory, size);
  data_ = static_cast<char*>(memory);
}

Mapping::~Mapping() { munmap(data_, size_); }

SharedMemory::Segment::Segment(uint64_t number, FileDescriptor file, size_t size, int rank)
    : number(number), file(std::move(file)), memory(this->file.number(), size, rank) {}

at::Tensor SharedMemory::allocate(int64_t numel, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(numel, 1)) * options.dtype().itemsize();
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  FileDescriptor file(memfd_create("accel", MFD_CLOEXEC));
  if (!file.is_open() || ftruncate(file.number(), static_cast<off_t>(size)) != 0) refuse(rank_, "reserved", size);
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

Place SharedMemory::locate(const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Place place;
  place.oldest = last_ + 1;
  const auto* const start = static_cast<const char*>(data);
  size_t kept = 0;
  for (auto& entry : segments_) {
    const auto segment = entry.lock();
    if (!segment) continue;
    segments_[kept++] = entry;
    place.oldest = std::min(place.oldest, segment->number);
    const char* const first = segment->memory.data();
    if (start < first || start + bytes > first + segment->memory.size()) continue;
    place.segment = segment->number;
    place.size = segment->memory.size();
    place.offset = static_cast<uint64_t>(start - first);
    place.descriptor = segment->file.number();
  }
  segments_.resize(kept);
  return place;
}

char* SharedMemory::attach(const Peers& peers, int peer, const Place& place) {
  const auto first = attached_.lower_bound({peer, 0});
  attached_.erase(first, attached_.lower_bound({peer, place.oldest}));
  auto found = attached_.find({peer, place.segment});
  if (found == attached_.end()) {
    const FileDescriptor file = peers.open_file(peer, static_cast<int>(place.descriptor));
    if (!file.is_open()) refuse(rank_, "opened", place.size);
    found = attached_.try_emplace({peer, place.segment}, file.number(), place.size, rank_).first;
  }
  return found->second.data() + place.offset;
}

}  // namespace accel::comm::ucx
