#include "checkpoint/files/atomic_file.hpp"

#include <algorithm>
#include <cerrno>

namespace accel::checkpoint {
namespace {

constexpr size_t kGathered = size_t{1} << 16;       // pieces below this are gathered
constexpr size_t kPending = size_t{1} << 20;        // up to that much
constexpr size_t kLargestWrite = size_t{64} << 20;  // of one call

FileDescriptor create(const std::string& path, FileSystem& files) {
  FileDescriptor descriptor(files.create_file(path.c_str()));
  if (!descriptor.is_open()) fail_system(Status::kIo, "create", path);
  return descriptor;
}

std::unique_ptr<OutputFile> create_sibling_file(const Target& target, FileSystem& files) {
  for (int attempt = 0; attempt < kSiblingAttempts; attempt++) {
    auto output = std::make_unique<OutputFile>(temporary_sibling(target, false), files, OutputFile::Summing::kOff);
    if (claim(output->descriptor())) return output;
  }
  fail(Status::kIo, "cannot keep a temporary file beside '", target.full(), "': other writers of it are removing them");
}

}  // namespace

OutputFile::OutputFile(const std::string& path, FileSystem& files, Summing summing)
    : files_(files), path_(path), summing_(summing), descriptor_(create(path, files)) {}

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
    const ssize_t written = files_.write(descriptor(), data, std::min(size, kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail_system(Status::kIo, "write", path_);
    const auto done = static_cast<size_t>(written);
    // The disk writes these bytes while their checksum is computed and the next ones are collected.
    if (done == kLargestWrite) files_.start_sync(descriptor(), size_, done);
    if (summing_ == Summing::kOn) checksum_.add(data, done);
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
