#include "config/configuration_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/file_descriptor.hpp"
#include "base/system_error.hpp"
#include "config/yaml_document.hpp"

namespace accel {
namespace {

bool ends_with_json(const std::string& path) {
  constexpr std::string_view kEnd = ".json";
  return path.size() > kEnd.size() && path.compare(path.size() - kEnd.size(), kEnd.size(), kEnd) == 0;
}

// Two spaces a level, as the reference has it.
void print_indented(const Json& value, const std::string& indent, std::string& out) {
  const std::string inner = indent + "  ";
  const char* separator = "";
  const auto next = [&] {
    out.append(separator).append("\n").append(inner);
    separator = ",";
  };
  if (value.members() != nullptr && !value.members()->empty()) {
    out += '{';
    for (const auto& [name, member] : *value.members()) {
      next();
      out += print_json(Json(name)) + ": ";
      print_indented(member, inner, out);
    }
    out += "\n" + indent + "}";
  } else if (value.items() != nullptr && !value.items()->empty()) {
    out += '[';
    for (const Json& item : *value.items()) {
      next();
      print_indented(item, inner, out);
    }
    out += "\n" + indent + "]";
  } else {
    out += print_json(value);
  }
}

// Where a link leads, so that the link stays.
std::string resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::kIo, "cannot make the folder '", folder.string(), "': ", error.message());
}

// A sibling with a name of its own, private until it has the permissions of the file that it replaces.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target)
      : path_(target + ".XXXXXX"), descriptor_(::mkostemp(path_.data(), O_CLOEXEC)) {
    if (!descriptor_.is_open()) fail_system(Status::kIo, "write", target);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!is_renamed_) ::unlink(path_.c_str());
  }

  void write(const std::string& content) const {
    for (size_t done = 0; done < content.size();) {
      const ssize_t written = ::write(descriptor_.number(), content.data() + done, content.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_system(Status::kIo, "write", path_);
      done += static_cast<size_t>(written);
    }
  }

  void replace(const std::string& target) {
    struct stat before {};
    const bool is_there = ::stat(target.c_str(), &before) == 0;
    if (::fchmod(descriptor_.number(), is_there ? before.st_mode & 07777 : 0644) != 0 ||
        ::fsync(descriptor_.number()) != 0 || ::rename(path_.c_str(), target.c_str()) != 0)
      fail_system(Status::kIo, "replace", target);
    is_renamed_ = true;
  }

 private:
  std::string path_;
  FileDescriptor descriptor_;
  bool is_renamed_ = false;
};

}  // namespace

Json file_form(const Json& configuration) {
  Json::Members kept;
  for (const auto& [name, value] : *configuration.members()) {
    Json member = value.members() == nullptr ? value : file_form(value);
    const bool is_empty = member.members() != nullptr && member.members()->empty();
    if (!member.is_null() && !is_empty) kept.emplace_back(name, std::move(member));
  }
  std::sort(kept.begin(), kept.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
  return Json(std::move(kept));
}

Json file_form(const LaunchConfiguration& configuration) { return file_form(json_of(configuration)); }

void write_configuration(const std::string& path, const Json& configuration) {
  if (!ends_with_json(path)) return replace_file(path, print_yaml(configuration));
  std::string document;
  print_indented(configuration, "", document);
  replace_file(path, document + "\n");
}

void replace_file(const std::string& path, const std::string& content) {
  require(!path.empty(), Status::kInvalidArgument, "the file to write has no name; expected one");
  make_folder_of(path);
  const std::string target = resolved(path);
  std::error_code error;
  require(!std::filesystem::is_directory(target, error), Status::kIo, "'", path,
          "' is a folder; expected the name of a file");
  TemporaryFile file(target);
  file.write(content);
  file.replace(target);
}

bool write_basic_configuration(const std::string& mixed_precision, const std::string& path, size_t num_gpus) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return false;
  std::string precision = mixed_precision;
  std::transform(precision.begin(), precision.end(), precision.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  require(precision == "no" || precision == "fp16" || precision == "bf16" || precision == "fp8",
          Status::kInvalidArgument, "mixed_precision is '", mixed_precision, "'; expected one of no, fp16, bf16, fp8");
  const LaunchConfiguration configuration = parse_launch_configuration(
      text("compute_environment: LOCAL_MACHINE\ndistributed_type: ", num_gpus > 1 ? "MULTI_GPU" : "NO",
           "\nmixed_precision: '", precision, "'\nnum_processes: ", std::max<size_t>(num_gpus, 1),
           "\nuse_cpu: ", num_gpus == 0 ? "true" : "false", "\n"),
      path);
  // JSON, whatever the name: it is YAML as well.
  std::string document;
  print_indented(file_form(configuration), "", document);
  replace_file(path, document + "\n");
  return true;
}

}  // namespace accel
