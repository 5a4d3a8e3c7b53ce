#include "checkpoint/files/atomic_file.hpp"

#include <algorithm>
#include <cerrno>

namespace accel::checkpoint {
namespace {

constexpr size_t kGathered = size_t{1} << 16;  // pieces below this are gathered
constexpr size_t kPending = size_t{1} << 20;   // up to that much
constexpr size_t kBlock = size_t{1} << 19;     // stays in a core's cache between its hash and its write
constexpr size_t kSynced = size_t{32} << 20;   // the disk starts on that much at a time

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

void OutputFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  if (size < kGathered) {
    pending_.insert(pending_.end(), bytes, bytes + size);
    if (pending_.size() >= kPending) flush();
    return;
  }
  flush();
  write_through(bytes, size);
}

void OutputFile::write_through(const char* data, size_t size) {
  while (size > 0) {
    const size_t block = std::min(size, kBlock);
    hash_.add(data, block);
    write_all(data, block);
    data += block;
    size -= block;
    // The disk writes these bytes while the next ones are collected.
    if (size_ - synced_ >= kSynced) {
      files_.start_sync(descriptor(), synced_, size_ - synced_);
      synced_ = size_;
    }
  }
}

void OutputFile::write_all(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = files_.write(descriptor(), data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail_system(Status::kIo, "write", path_);
    const auto done = static_cast<size_t>(written);
    size_ += done;
    data += done;
    size -= done;
  }
}

void OutputFile::flush() {
  write_through(pending_.data(), pending_.size());
  pending_.clear();
}

void OutputFile::finish() {
  flush();
  if (files_.sync(descriptor()) != 0) fail_system(Status::kIo, "make durable", path_);
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
