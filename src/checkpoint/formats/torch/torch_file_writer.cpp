// SPDX-License-Identifier: Apache-2.0
// Writer of torch's files; torch_file.hpp.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/formats/torch/pickle_writer.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/torch/torch_tensors.hpp"
#include "checkpoint/formats/torch/zip_reader.hpp"
#include "checkpoint/formats/torch/zip_writer.hpp"
#include "tensor/device/host_ring.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kStorageAlignment = 64;  // in the file
constexpr uint64_t kPartAlignment = 16;     // of the part of a storage that is written
constexpr const char* kArchiveRoot = "archive/";

// A storage in the file: the bytes that tensors use.
struct StoredStorage {
  at::Storage storage;
  std::string key;
  at::ScalarType dtype;
  bool has_one_dtype;
  uint64_t begin;
  uint64_t end;
};

// The bytes of its storage that a tensor uses.
std::pair<uint64_t, uint64_t> used_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {0, 0};
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); i++) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto element = static_cast<int64_t>(tensor.element_size());
  const auto begin = static_cast<uint64_t>(tensor.storage_offset() * element);
  return {begin - begin % kPartAlignment, static_cast<uint64_t>((last + 1) * element)};
}

// The contents of the file of a value.
class TorchFileContents {
 public:
  explicit TorchFileContents(const c10::IValue& value) {
    tree::for_each_tensor(value, [this](const at::Tensor& tensor) { add(tensor); });
    size_t described = 0;
    PickleWriter writer([&](const at::Tensor&, PickleStream& pickle) { describe(tensors_[described++], pickle); });
    pickle_ = writer.pickle(value);
  }

  void write(OutputFile& output) const {
    ZipWriter zip(output, kStorageAlignment);
    zip.add(path_of("data.pkl"), pickle_);
    zip.add(path_of(".format_version"), "1");
    zip.add(path_of(".storage_alignment"), std::to_string(kStorageAlignment));
    zip.add(path_of("byteorder"), "little");
    for (const StoredStorage& stored : storages_) write_storage(stored, zip);
    zip.add(path_of("version"), "3\n");
    zip.finish();
  }

  bool is_in(std::string_view archive, const std::string& source) const {
    std::unordered_map<std::string, ListedZipEntry> entries;
    for (ListedZipEntry& entry : list_zip(archive, source)) entries.emplace(entry.name, std::move(entry));
    const auto pickle = entries.find(path_of("data.pkl"));
    return pickle != entries.end() && open_zip_entry(archive, pickle->second, source).data == pickle_ &&
           std::all_of(storages_.begin(), storages_.end(), [&](const StoredStorage& stored) {
             const auto found = entries.find(path_of("data/" + stored.key));
             return found != entries.end() && found->second.size == stored.end - stored.begin;
           });
  }

 private:
  static std::string path_of(const std::string& name) { return kArchiveRoot + name; }

  void add(const at::Tensor& given) {
    require(given.layout() == at::kStrided && !given.is_quantized(), Status::kTypeMismatch,
            "a tensor is sparse or quantized; files hold dense tensors");
    require(!given.is_meta(), Status::kTypeMismatch, "a tensor is on the meta device and has no data to write");
    const at::Tensor tensor = given.is_conj() || given.is_neg() ? given.resolve_conj().resolve_neg() : given;
    const auto [begin, end] = used_bytes(tensor);
    const auto [place, is_new] = places_.emplace(tensor.storage().unsafeGetStorageImpl(), storages_.size());
    if (is_new) {
      const bool has_type = storage_type_name(tensor.scalar_type()) != nullptr;
      storages_.push_back(
          {tensor.storage(), std::to_string(storages_.size()), tensor.scalar_type(), has_type, begin, end});
    } else {
      StoredStorage& stored = storages_[place->second];
      stored.has_one_dtype = stored.has_one_dtype && stored.dtype == tensor.scalar_type();
      if (stored.begin == stored.end)
        std::tie(stored.begin, stored.end) = std::pair(begin, end);
      else if (begin < end)
        std::tie(stored.begin, stored.end) = std::pair(std::min(stored.begin, begin), std::max(stored.end, end));
    }
    tensors_.push_back(tensor);
  }

  // Describes a tensor as torch does: a function that makes the tensor, and its arguments. Storages of one dtype have
  // its name, which torch knows longest.
  void describe(const at::Tensor& tensor, PickleStream& pickle) const {
    const StoredStorage& stored = storages_[places_.at(tensor.storage().unsafeGetStorageImpl())];
    const uint64_t element = tensor.element_size(), bytes = stored.end - stored.begin;
    pickle.add_name("torch._utils", stored.has_one_dtype ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    pickle.begin_tuple();
    pickle.begin_tuple();
    pickle.add_text("storage");
    if (stored.has_one_dtype)
      pickle.add_name("torch", storage_type_name(stored.dtype));
    else
      pickle.add_name("torch.storage", "UntypedStorage");
    pickle.add_text(stored.key);
    pickle.add_text("cpu");
    pickle.add_integer(static_cast<int64_t>(stored.has_one_dtype ? bytes / element : bytes));
    pickle.end_tuple();
    pickle.refer_to_storage();
    const bool is_empty = tensor.numel() == 0;
    pickle.add_integer(is_empty ? 0 : tensor.storage_offset() - static_cast<int64_t>(stored.begin / element));
    pickle.add_tuple(tensor.sizes());
    pickle.add_tuple(tensor.strides());
    pickle.add_bool(tensor.requires_grad());
    pickle.add_name("collections", "OrderedDict");  // its hooks
    pickle.begin_tuple();
    pickle.end_tuple();
    pickle.call();
    if (!stored.has_one_dtype) pickle.add_dtype(tensor.scalar_type());
    pickle.end_tuple();
    pickle.call();
  }

  static void write_storage(const StoredStorage& stored, ZipWriter& zip) {
    const uint64_t size = stored.end - stored.begin;
    const auto options = at::TensorOptions().dtype(at::kByte).device(stored.storage.device());
    at::Tensor bytes = at::empty({0}, options);
    if (size > 0) bytes.set_(stored.storage, static_cast<int64_t>(stored.begin), {static_cast<int64_t>(size)}, {1});
    zip.add(path_of("data/" + stored.key), size,
            [&](const ZipWriter::Take& take) { tensor::read_on_host(bytes, take); });
  }

  std::vector<StoredStorage> storages_;
  std::unordered_map<const c10::StorageImpl*, size_t> places_;
  std::vector<at::Tensor> tensors_;  // in the order of the pickle
  std::string pickle_;
};

}  // namespace

void write_torch_file(OutputFile& output, const c10::IValue& value) { TorchFileContents(value).write(output); }

void save_torch_file(const std::string& path, const c10::IValue& value, FileSystem& files) {
  AtomicFile file(path, files);
  const TorchFileContents contents(value);
  contents.write(file.output());
  file.commit([&](const std::string& written) {
    read_back(written, [&] { return contents.is_in(MappedFile(written).text(), written); });
  });
}

bool is_torch_file_of(const std::string& path, const c10::IValue& value) {
  return TorchFileContents(value).is_in(MappedFile(path).text(), path);
}

}  // namespace accel::checkpoint
