// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/atomic_file.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "kernels/memory/cpu_allocator.hpp"
#include "os/background_thread.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {
namespace {

constexpr size_t kHashedChunk = size_t{1} << 19;  // stays in a core's cache between its hash and its copy
constexpr size_t kBuffer = size_t{16} << 20;      // two of them, so that one is filled while the other is written
constexpr size_t kDirectUnit = 4096;              // what is written past the page cache is a multiple of it
constexpr double kCacheSpeed = 1e9;               // bytes a second that the page cache takes at least

// The buffer has huge pages, which are cached for the next file: with pages of 4 KiB, the system takes a third longer
// to write them past its cache, and longer to clear new ones than to write them.
std::shared_ptr<char> allocate_buffer() {
  const at::Tensor memory = kernels::empty_cached({static_cast<int64_t>(kBuffer)}, at::kByte);
  return {static_cast<char*>(memory.mutable_data_ptr()), [memory](char*) {}};
}

FileDescriptor create(const std::string& path, FileSystem& files) {
  FileDescriptor descriptor(files.create_file(path.c_str()));
  if (!descriptor.is_open()) fail_system(Status::kIo, "create", path);
  return descriptor;
}

std::unique_ptr<OutputFile> create_sibling_file(const Target& target, FileSystem& files) {
  for (int attempt = 0; attempt < kSiblingAttempts; attempt++) {
    auto output = std::make_unique<OutputFile>(temporary_sibling(target, false), files);
    if (claim(output->descriptor())) return output;
  }
  fail(Status::kIo, "cannot keep a temporary file beside '", target.full(), "': other writers of it are removing them");
}

}  // namespace

OutputFile::OutputFile(const std::string& path, FileSystem& files)
    : files_(files), path_(path), descriptor_(create(path, files)) {}

OutputFile::~OutputFile() {
  if (writer_.joinable()) writer_.join();
}

void OutputFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    if (!filling_) filling_ = allocate_buffer();
    const size_t chunk = std::min({size, kHashedChunk, kBuffer - filled_});
    hash_.add(bytes, chunk);
    std::memcpy(filling_.get() + filled_, bytes, chunk);
    filled_ += chunk;
    size_ += chunk;
    bytes += chunk;
    size -= chunk;
    if (filled_ == kBuffer) write_in_background();
  }
}

// The page cache is passed by where the file system can do without: the processor has then next to nothing to do, and
// the disk works at its own speed, which is three times that of write() and fsync(), and faster than write() alone. A
// file that need not be durable goes into the cache if the disk turns out to be slower than that.
void OutputFile::write_in_background() {
  wait_for_writer();
  if (!writing_) is_direct_ = files_.set_direct(descriptor(), true) == 0;
  std::swap(filling_, writing_);
  filled_ = 0;
  std::packaged_task<void()> task([this] {
    const auto begin = std::chrono::steady_clock::now();
    write_all(writing_.get(), kBuffer);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (is_direct_ && !files_.is_durable() && seconds.count() * kCacheSpeed > kBuffer) write_through_cache();
  });
  written_ = task.get_future();
  writer_ = background_thread("accel-write", std::move(task));
}

void OutputFile::wait_for_writer() {
  if (!writer_.joinable()) return;
  writer_.join();
  written_.get();
}

void OutputFile::write_all(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = files_.write(descriptor(), data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && is_direct_) {
      write_through_cache();
      continue;
    }
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail_system(Status::kIo, "write", path_);
    const auto done = static_cast<size_t>(written);
    data += done;
    size -= done;
    if (done % kDirectUnit != 0 && is_direct_) write_through_cache();  // what is left is not aligned
  }
}

void OutputFile::write_through_cache() {
  if (files_.set_direct(descriptor(), false) != 0) fail_system(Status::kIo, "write", path_);
  is_direct_ = false;
}

void OutputFile::finish(bool durable) {
  wait_for_writer();
  const size_t aligned = is_direct_ ? filled_ - filled_ % kDirectUnit : 0;
  write_all(filling_.get(), aligned);
  if (is_direct_ && aligned < filled_) write_through_cache();
  write_all(filling_.get() + aligned, filled_ - aligned);
  filled_ = 0;
  filling_.reset();
  writing_.reset();
  if (durable && files_.sync(descriptor()) != 0) fail_system(Status::kIo, "make durable", path_);
}

bool is_as_written(const OutputFile& output) {
  constexpr uint64_t kMostHashed = 1 << 20;
  const MappedFile written(output.path());
  return written.size() == output.size() && (written.size() > kMostHashed || hash_of_file(written) == output.hash());
}

void read_back(const std::string& path, const std::function<bool()>& is_as_given) {
  std::string reason = "it is another document";
  try {
    if (is_as_given()) return;
  } catch (const Error& error) {
    if (error.status() != Status::kCorrupt) throw;
    reason = error.message();
  }
  fail(Status::kIo, "what was written to '", path, "' does not come back: ", reason, "; see whether the disk is sound");
}

AtomicFile::AtomicFile(const std::string& path, FileSystem& files) : files_(files), target_(path) {
  clean_leftovers(target_, files_);
  output_ = create_sibling_file(target_, files_);
}

AtomicFile::~AtomicFile() {
  if (!committed_) files_.remove_file(output_->path().c_str());
}

void AtomicFile::commit(const std::function<void(const std::string& path)>& check) {
  output_->finish();
  if (check) check(output_->path());
  if (files_.rename(output_->path().c_str(), target_.full().c_str()) != 0)
    fail_system(Status::kIo, "give its name to", target_.full());
  committed_ = true;
  sync_folder(files_, target_.parent);
}

}  // namespace accel::checkpoint
