// SPDX-License-Identifier: Apache-2.0
#include "nn/package/package_file.hpp"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/first_line.hpp"
#include "base/name_list.hpp"
#include "base/text_ends.hpp"
#include "json/json.hpp"
#include "os/system_error.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::nn {
namespace {

constexpr const char* kModels = "data/aotinductor/";
constexpr const char* kExtension = ".so";
constexpr const char* kTexts = "_metadata.json";
constexpr size_t kCopiedChunk = size_t{1} << 20;

// Names in archives come from outside: none may lead out of the folder.
bool is_plain(std::string_view name) {
  return !name.empty() && name.front() != '/' && name.find("..") == std::string_view::npos &&
         name.find('\\') == std::string_view::npos;
}

}  // namespace

PackageFile::PackageFile(const std::string& path, const std::string& model) : path_(path) {
  std::error_code code;
  require(std::filesystem::is_regular_file(path, code), Status::kNotFound, "the package '", path,
          "' is not there; expected what torch._inductor.aoti_compile_and_package() or accel compile wrote");
  try {
    reader_ = std::make_unique<caffe2::serialize::PyTorchStreamReader>(path);
    folder_ = find_folder(model);
    read_texts();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    if (tensor::means_no_memory(error)) throw;
    fail_as_corrupt(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    fail_as_corrupt(first_line(error.what()));
  }
}

PackageFile::~PackageFile() = default;

void PackageFile::fail_as_corrupt(const std::string& reason) const {
  fail(Status::kCorrupt, "the package '", path_, "' cannot be read: ", reason);
}

std::string PackageFile::text_of(const std::string& name) const {
  const auto found = texts_.find(name);
  return found == texts_.end() ? "" : found->second;
}

std::string PackageFile::find_folder(const std::string& model) {
  std::set<std::string> models;
  for (const std::string& record : reader_->getAllRecords()) {
    if (!starts_with(record, kModels)) continue;
    const std::string name = record.substr(std::string_view(kModels).size());
    if (const size_t slash = name.find('/'); slash != std::string::npos) models.insert(name.substr(0, slash));
  }
  if (models.empty()) fail_as_corrupt("it has no model of AOTInductor");
  const std::string names = list_names({models.begin(), models.end()});
  require(!model.empty() || models.size() == 1, Status::kInvalidArgument, "the package '", path_, "' has the models ",
          names, "; expected model_name to be one of them");
  require(model.empty() || models.count(model) != 0, Status::kNotFound, "the package '", path_, "' has no model '",
          model, "'; it has ", names);
  return kModels + (model.empty() ? *models.begin() : model) + "/";
}

void PackageFile::read_texts() {
  bool has_sources = false;
  for (const std::string& record : reader_->getAllRecords()) {
    if (!starts_with(record, folder_)) continue;
    const std::string name = record.substr(folder_.size());
    has_sources = has_sources || ends_with(name, ".cpp");
    if (ends_with(name, kExtension)) shared_object_ = name;
  }
  require(!shared_object_.empty() || !has_sources, Status::kUnsupported, "the package '", path_,
          "' has sources and no shared object; make it without aot_inductor.package_cpp_only");
  if (shared_object_.empty()) fail_as_corrupt("it has no shared object");
  const std::string stem = shared_object_.substr(0, shared_object_.size() - std::string_view(kExtension).size());
  const std::string record = folder_ + stem + kTexts;
  if (!reader_->hasRecord(record)) fail_as_corrupt("it does not say what it is for: '" + record + "' is missing");
  const auto [data, size] = reader_->getRecord(record);
  const Json read = parse_json({static_cast<const char*>(data.get()), size}, path_ + ":" + record);
  if (read.members() == nullptr) fail_as_corrupt("'" + record + "' is no object");
  for (const auto& [name, value] : *read.members())
    if (value.text() != nullptr) texts_[name] = *value.text();
}

std::string PackageFile::extract(const std::string& folder) {
  try {
    for (const std::string& record : reader_->getAllRecords()) {
      if (!starts_with(record, folder_)) continue;
      const std::string name = record.substr(folder_.size());
      if (!is_plain(name)) fail_as_corrupt("the name '" + record + "' leads out of the archive");
      const std::filesystem::path path = std::filesystem::path(folder) / name;
      std::filesystem::create_directories(path.parent_path());
      extract_file(record, path.string());
    }
  } catch (const c10::Error& error) {
    if (tensor::means_no_memory(error)) throw;
    fail_as_corrupt(first_line(error.what_without_backtrace()));
  }
  return folder + "/" + shared_object_;
}

void PackageFile::extract_file(const std::string& record, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const size_t size = reader_->getRecordSize(record);
  auto chunks = reader_->createChunkReaderIter(record, size, std::min(size, kCopiedChunk));
  std::vector<char> chunk(std::min(size, kCopiedChunk));
  for (size_t written = 0; file && written < size;) {
    const size_t count = chunks.next(chunk.data());
    if (count == 0) fail_as_corrupt("'" + record + "' ends early");
    file.write(chunk.data(), static_cast<std::streamsize>(count));
    written += count;
  }
  file.close();
  if (!file) fail_system(Status::kIo, "write", path);
}

}  // namespace accel::nn
