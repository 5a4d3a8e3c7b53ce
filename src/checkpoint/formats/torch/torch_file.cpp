// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/torch_file.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/formats/torch/mapped_storage.hpp"
#include "checkpoint/formats/torch/pickle_arguments.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "checkpoint/formats/torch/torch_tensors.hpp"
#include "checkpoint/formats/torch/zip_reader.hpp"
#include "os/bus_error_guard.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kZip("PK\x03\x04", 4);
constexpr std::string_view kMagicNumber("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::string_view kMagicDigits = "119547037146038801333356L";  // of protocols 0 and 1
constexpr int64_t kProtocolVersion = 1001;
constexpr size_t kElementAlignment = 16;  // of the largest element
constexpr size_t kTarMagicAt = 257;
constexpr std::string_view kTar = "ustar";
constexpr size_t kMagicNumberWithin = 32;  // bytes

using MappedPointer = std::shared_ptr<const MappedFile>;

// ("storage", type, key, location, number of elements)
struct StorageId {
  std::string key;
  at::ScalarType dtype;
  uint64_t bytes;
};

StorageId storage_id(const PickleItems& id) {
  const auto text = [&](size_t index) {
    const std::string* const found = pickled_argument("a persistent id", id, index).text();
    require(found != nullptr, Status::kCorrupt, "a persistent id has a ", kind_of(*id[index]), "; expected text");
    return found;
  };
  require(*text(0) == "storage", Status::kUnsupported, "it refers to a ", printable(*text(0)),
          " outside of it; expected a storage");
  const std::string* const type = pickled_argument("a persistent id", id, 1).name();
  const auto dtype = type == nullptr ? std::nullopt : storage_dtype(*type);
  require(dtype.has_value(), Status::kUnsupported, "a storage is of ", type == nullptr ? "an unknown class" : *type,
          "; expected one of torch's");
  require(*text(3) != "meta", Status::kUnsupported, "a tensor is on the meta device and has no data");
  const int64_t elements = pickled_integer(pickled_argument("a persistent id", id, 4), "the size of a storage");
  uint64_t bytes = 0;
  require(elements >= 0 && !__builtin_mul_overflow(static_cast<uint64_t>(elements), c10::elementSize(*dtype), &bytes),
          Status::kCorrupt, "a storage has ", elements, " elements");
  require(id.size() < 6 || id[5]->is_none(), Status::kUnsupported,
          "a storage is a part of another one, as before torch 0.4; save it with a later one");
  return {*text(2), *dtype, bytes};
}

// The storages of a file, each under its key.
class StorageTable {
 public:
  // Finds or adds a storage; `make` is called for a new one.
  template <typename Make>
  PickleNode find(const StorageId& id, const Make& make) {
    auto found = storages_.find(id.key);
    if (found == storages_.end()) found = storages_.emplace(id.key, PickledStorage{make(id), id.dtype}).first;
    require(found->second.storage.nbytes() == id.bytes && found->second.dtype == id.dtype, Status::kCorrupt,
            "the storage '", printable(id.key), "' has two sizes or types");
    return {found->second};
  }
  std::unordered_map<std::string, PickledStorage>& all() { return storages_; }

 private:
  std::unordered_map<std::string, PickledStorage> storages_;
};

c10::IValue read_archive(const MappedPointer& file, std::string_view bytes, PickleOptions options) {
  const std::vector<ZipEntry> entries = read_zip(bytes, file->path());
  std::unordered_map<std::string_view, const ZipEntry*> by_name;
  for (const ZipEntry& entry : entries) by_name.emplace(entry.name, &entry);
  const std::string_view first = entries.empty() ? std::string_view() : std::string_view(entries.front().name);
  const std::string root(first.substr(0, first.find('/') + 1));
  const auto find = [&](const std::string& name) {
    const auto found = by_name.find(root + name);
    return found == by_name.end() ? nullptr : found->second;
  };
  require(find("constants.pkl") == nullptr, Status::kUnsupported, "'", file->path(),
          "' is a TorchScript archive; expected a file of torch.save()");
  const ZipEntry* const pickle = find("data.pkl");
  require(pickle != nullptr, Status::kCorrupt, "'", file->path(), "' is a zip archive without '", printable(root),
          "data.pkl'; expected a file of torch.save()");
  const ZipEntry* const order = find("byteorder");
  require(order == nullptr || order->data == "little", Status::kUnsupported, "'", file->path(),
          "' does not say that it is little-endian");
  check_zip_entry(*pickle, file->path());

  StorageTable storages;
  const auto make = [&](const StorageId& id) {
    const ZipEntry* const entry = find("data/" + id.key);
    require(entry != nullptr, Status::kCorrupt, "the storage '", printable(id.key), "' is missing");
    require(entry->data.size() == id.bytes, Status::kCorrupt, "the storage '", printable(id.key), "' has ",
            entry->data.size(), " bytes; expected ", id.bytes);
    return fixed_storage(mapped_data(file, entry->data, kElementAlignment), entry->data.size());
  };
  options.load_persistent = [&](const PickleItems& id) { return storages.find(storage_id(id), make); };
  PickleReader reader(pickle->data, file->path(), options);
  return reader.value_of(reader.read());
}

// The layout before torch 1.6: four pickles (magic number, version, system, value), then the keys of the value's
// storages and their data.
c10::IValue read_stream(const MappedPointer& file, std::string_view bytes, PickleOptions options) {
  const auto corrupt = [&](const auto&... parts) {
    fail(Status::kCorrupt, "'", file->path(), "' is not a valid file of torch.save(): ", parts...);
  };
  StorageTable storages;
  options.load_persistent = [&](const PickleItems& id) {  // storages get their data below
    return storages.find(storage_id(id), [](const StorageId& wanted) {
      return fixed_storage({nullptr, at::kCPU}, wanted.bytes);
    });
  };
  PickleReader reader(bytes, file->path(), options);
  const auto* const magic = std::get_if<PickledLong>(&reader.read().content);
  if (magic == nullptr || magic->bytes != kMagicNumber) corrupt("its magic number is wrong");
  const PickleNode& version = reader.read();
  if (version.value() == nullptr || !version.value()->isInt() || version.value()->toInt() != kProtocolVersion)
    corrupt("its version is not ", kProtocolVersion);
  const auto* const system = std::get_if<PickledMap>(&reader.read().content);
  if (system == nullptr) corrupt("its description of the system is not a map");
  for (const auto& [key, value] : system->members) {
    const bool is_order = key->text() != nullptr && *key->text() == "little_endian";
    require(!is_order || value->is_true(), Status::kUnsupported, "'", file->path(),
            "' is big-endian; expected little-endian");
  }
  const PickleNode& value = reader.read();
  const PickleItems* const keys = reader.read().items();
  if (keys == nullptr || keys->size() != storages.all().size()) corrupt("it does not list its storages");

  size_t position = reader.position();
  const auto take = [&](uint64_t size) {
    if (size > bytes.size() - position) corrupt("it is cut short in its storages");
    position += size;
    return bytes.substr(position - size, size);
  };
  for (const PickleNode* key : *keys) {
    const auto found = key->text() == nullptr ? storages.all().end() : storages.all().find(*key->text());
    if (found == storages.all().end()) corrupt("it has a storage that is not used, or one twice");
    const auto& [storage, dtype] = found->second;
    uint64_t elements = 0;
    const std::string_view length = take(sizeof elements);
    std::memcpy(&elements, length.data(), sizeof elements);
    if (elements != storage.nbytes() / c10::elementSize(dtype))
      corrupt("the storage '", printable(*key->text()), "' has ", elements, " elements; expected ",
              storage.nbytes() / c10::elementSize(dtype));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(mapped_data(file, take(storage.nbytes()), kElementAlignment));
    storages.all().erase(found);
  }
  if (position != bytes.size()) corrupt("it has ", bytes.size() - position, " bytes behind its last storage");
  return reader.value_of(value);
}

bool has_magic_number(std::string_view first_bytes) {
  const std::string_view begin = first_bytes.substr(0, kMagicNumberWithin);
  return begin.find(kMagicNumber) != std::string_view::npos || begin.find(kMagicDigits) != std::string_view::npos;
}

bool is_tar(std::string_view first_bytes) {
  return first_bytes.size() > kTarMagicAt && first_bytes.substr(kTarMagicAt, kTar.size()) == kTar;
}

c10::IValue read_file(const MappedPointer& file, std::string_view bytes, const PickleOptions& options) {
  const BusErrorGuard guard;
  require(!is_tar(bytes), Status::kUnsupported, "'", file->path(),
          "' is a tar archive, as torch wrote before 0.1.10; load and save it with a torch before 2.6");
  const bool is_stream = has_magic_number(bytes);
  require(is_stream || bytes.substr(0, kZip.size()) == kZip, Status::kCorrupt, "'", file->path(),
          "' is not a file of torch.save(): it begins neither as a zip archive nor with torch's magic number");
  c10::IValue value = is_stream ? read_stream(file, bytes, options) : read_archive(file, bytes, options);
  guard.check();
  return value;
}

}  // namespace

bool is_torch_file(std::string_view first_bytes) {
  return first_bytes.substr(0, kZip.size()) == kZip || has_magic_number(first_bytes) || is_tar(first_bytes);
}

c10::IValue read_torch_file(const std::shared_ptr<const MappedFile>& file) {
  return read_torch_file(file, file->text());
}

c10::IValue read_torch_file(const std::shared_ptr<const MappedFile>& file, std::string_view bytes) {
  return read_file(file, bytes, {});
}

c10::IValue read_torch_file_of_objects(const std::shared_ptr<const MappedFile>& file, const RecordClasses* records) {
  return read_file(file, file->text(), {{}, records, true});
}

}  // namespace accel::checkpoint
