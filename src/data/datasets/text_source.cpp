#include "data/datasets/text_source.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

constexpr int64_t kSmallestMap = 1 << 20;

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail_errno("cannot be opened");
  }
  ~Descriptor() { ::close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return descriptor_; }
  int64_t size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_errno("cannot be examined");
    return status.st_size;
  }
  // Reads until the end of the file or the block; returns the bytes.
  size_t read(uint8_t* out, size_t count) const {
    size_t done = 0;
    while (done < count) {
      const ssize_t got = ::read(descriptor_, out + done, count - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("cannot be read");
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }
  [[noreturn]] void fail_errno(const char* what) const {
    const int error = errno;
    fail(Status::kIo, "text file ", path_, " ", what, ": ", std::strerror(error));
  }

 private:
  std::string path_;
  int descriptor_;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::vector<std::string> find_files(const std::string& path, const std::optional<std::string>& suffix) {
  namespace filesystem = std::filesystem;
  std::error_code error;
  const auto status = filesystem::status(path, error);
  require(filesystem::exists(status), Status::kNotFound, "text ", path, " is not there; expected a file or a folder");
  if (filesystem::is_regular_file(status)) return {path};
  require(filesystem::is_directory(status), Status::kInvalidArgument, "text ", path,
          " is neither a regular file nor a folder; expected one of them");
  std::vector<std::string> files;
  const auto options = filesystem::directory_options::skip_permission_denied;
  for (filesystem::recursive_directory_iterator entry(path, options, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;  // a file that vanished, or a link to nothing, is no regular file
    if (entry->is_regular_file(gone) && ends_with(entry->path().native(), suffix.value_or("")))
      files.push_back(entry->path().native());
  }
  require(!error, Status::kIo, "folder ", path, " cannot be listed: ", error.message());
  require(!files.empty(), Status::kNotFound, "folder ", path, " has no text file",
          suffix ? " that ends with " + *suffix : std::string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

class TextSource::Map {
 public:
  Map(const Descriptor& file, int64_t size) : size_(static_cast<size_t>(size)) {
    void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) file.fail_errno("cannot be mapped");
    data_ = static_cast<const uint8_t*>(address);
  }
  Map(Map&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Map& operator=(Map&&) = delete;
  ~Map() {
    if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  }
  const uint8_t* data() const { return data_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_;
};

TextSource::TextSource(const std::string& path, const std::optional<std::string>& suffix) {
  add_files(find_files(path, suffix));
}

TextSource::~TextSource() = default;

void TextSource::add_files(const std::vector<std::string>& files) {
  std::vector<uint8_t> block;
  const auto flush = [&] {
    if (block.empty()) return;
    blocks_.push_back(std::move(block));
    block.clear();
    add_segment(blocks_.back().data(), static_cast<int64_t>(blocks_.back().size()));
  };
  for (const auto& path : files) {
    const Descriptor file(path);
    const int64_t size = file.size();
    if (size >= kSmallestMap) {
      flush();
      maps_.emplace_back(file, size);
      add_segment(maps_.back().data(), size);
      continue;
    }
    const size_t before = block.size();
    block.resize(before + static_cast<size_t>(size));
    block.resize(before + file.read(block.data() + before, static_cast<size_t>(size)));
  }
  flush();
}

void TextSource::add_segment(const uint8_t* data, int64_t size) {
  segments_.push_back({size_, data, size});
  size_ += size;
}

void TextSource::read(int64_t begin, int64_t count, int64_t* out) const {
  auto segment =
      std::prev(std::upper_bound(segments_.begin(), segments_.end(), begin,
                                 [](int64_t position, const Segment& entry) { return position < entry.begin; }));
  while (count > 0) {
    const int64_t offset = begin - segment->begin;
    const int64_t part = std::min(count, segment->size - offset);
    out = std::copy_n(segment->data + offset, part, out);
    begin += part;
    count -= part;
    ++segment;
  }
}

}  // namespace accel::data
