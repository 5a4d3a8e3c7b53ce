// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"

#include <ATen/core/Tensor.h>
#include <sys/stat.h>

#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/formats/torch/pickle_reader.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "os/mapped_file.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kRecordNames[] = {
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",  // before torch 2.5
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "torch.serialization._get_layout",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
};
constexpr RecordClasses kRecords = {kRecordNames, std::size(kRecordNames)};

struct Chunk {
  std::string file;
  uint64_t begin;
  uint64_t size;
  std::vector<int64_t> offset;  // of its first element in the tensor
};

using Keys = std::vector<c10::IValue>;

class MetadataReader {
 public:
  explicit MetadataReader(const std::string& folder)
      : file_(folder + "/" + kDistributedListFile),
        reader_(file_.text(), file_.path(), {{}, &kRecords}),
        root_(reader_.read()) {}

  // {full name: chunks}
  std::map<std::string, std::vector<Chunk>> chunks() {
    std::map<std::string, std::vector<Chunk>> chunks;
    for (const auto& [index, info] : map_of(member(root_, "storage_data"), "storage_data").members) {
      require_plain(*info);
      const std::string path = text_of(member(*info, "relative_path"));
      require(path.find('/') == std::string::npos && path != "..", Status::kCorrupt, "'", file_.path(),
              "' names the file '", path, "'; expected one of its folder");
      const bool has_offset = has_member(*index, "offset") && !member(*index, "offset").is_none();
      chunks[text_of(member(*index, "fqn"))].push_back(
          {path, number_of(member(*info, "offset")), number_of(member(*info, "length")),
           has_offset ? shape_of(member(*index, "offset")) : std::vector<int64_t>()});
    }
    return chunks;
  }

  // {full name: shape, or none of what is not a tensor}, in their order.
  using Shapes = std::vector<std::pair<std::string, std::optional<std::vector<int64_t>>>>;
  Shapes shapes() {
    Shapes shapes;
    for (const auto& [name, metadata] : map_of(member(root_, "state_dict_metadata"), "state_dict_metadata").members) {
      auto& added = shapes.emplace_back(text_of(*name), std::nullopt);
      if (has_member(*metadata, "size")) added.second = shape_of(member(*metadata, "size"));
    }
    return shapes;
  }

  // The shapes of tensors alone.
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors() {
    std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
    for (const auto& [name, shape] : shapes()) {
      if (shape)
        tensors.emplace_back(name, *shape);
      else
        log(LogLevel::kWarning, "'", file_.path(), "' has '", name, "', which is not a tensor and is left out");
    }
    return tensors;
  }

  // {full name: its keys in the nested state dict}: texts, and the numbers of items of lists.
  std::map<std::string, Keys> keys() {
    std::map<std::string, Keys> keys;
    const PickleNode& planner = member(root_, "planner_data");
    if (!std::holds_alternative<PickledMap>(planner.content)) return keys;
    for (const auto& [name, path] : std::get<PickledMap>(planner.content).members) {
      const PickleItems* const items = path->items();
      if (items == nullptr) continue;
      Keys& parts = keys[text_of(*name)];
      for (const PickleNode* const item : *items)
        parts.emplace_back(item->text() != nullptr ? c10::IValue(*item->text())
                                                   : c10::IValue(static_cast<int64_t>(number_of(*item))));
    }
    return keys;
  }

  const std::string& path() const { return file_.path(); }

 private:
  const PickledMap& map_of(const PickleNode& node, const char* what) const {
    require(std::holds_alternative<PickledMap>(node.content), Status::kCorrupt, "'", file_.path(), "': ", what,
            " is a ", kind_of(node), "; expected a map");
    return std::get<PickledMap>(node.content);
  }

  const PickleNode* find(const PickleNode& record, const char* name) const {
    const auto* const object = std::get_if<PickledRecord>(&record.content);
    require(object != nullptr && object->state != nullptr, Status::kCorrupt, "'", file_.path(), "' has a ",
            kind_of(record), " without '", name, "'; expected an object that has it");
    for (const auto& [key, value] : map_of(*object->state, object->class_name.c_str()).members)
      if (key->text() != nullptr && *key->text() == name) return value;
    return nullptr;
  }
  bool has_member(const PickleNode& record, const char* name) const {
    const auto* const object = std::get_if<PickledRecord>(&record.content);
    return object != nullptr && object->state != nullptr && find(record, name) != nullptr;
  }
  const PickleNode& member(const PickleNode& record, const char* name) const {
    const PickleNode* const found = find(record, name);
    require(found != nullptr, Status::kCorrupt, "'", file_.path(), "' has an object without '", name, "'");
    return *found;
  }

  // Chunks may be encoded, by extensions that this library does not know.
  void require_plain(const PickleNode& info) const {
    const bool encoded = has_member(info, "transform_descriptors") && !member(info, "transform_descriptors").is_none();
    require(!encoded, Status::kUnsupported, "'", file_.path(),
            "' has tensors that an extension has encoded; expected plain ones");
  }

  std::string text_of(const PickleNode& node) const {
    require(node.text() != nullptr, Status::kCorrupt, "'", file_.path(), "' has a ", kind_of(node),
            " in the place of a text");
    return *node.text();
  }
  uint64_t number_of(const PickleNode& node) const {
    const c10::IValue* const value = node.value();
    require(value != nullptr && value->isInt() && value->toInt() >= 0, Status::kCorrupt, "'", file_.path(), "' has a ",
            kind_of(node), " in the place of a number");
    return static_cast<uint64_t>(value->toInt());
  }
  std::vector<int64_t> shape_of(const PickleNode& node) const {
    const PickleItems* const items = node.items();
    require(items != nullptr, Status::kCorrupt, "'", file_.path(), "' has a ", kind_of(node),
            " in the place of a shape");
    std::vector<int64_t> shape;
    for (const PickleNode* const item : *items) shape.push_back(static_cast<int64_t>(number_of(*item)));
    return shape;
  }

  MappedFile file_;
  PickleReader reader_;
  const PickleNode& root_;
};

class ChunkFiles {
 public:
  explicit ChunkFiles(std::string folder) : folder_(std::move(folder)) {}

  at::Tensor read(const Chunk& chunk) {
    const c10::IValue value = read_value(chunk);
    require(value.isTensor(), Status::kCorrupt, "'", folder_, "/", chunk.file, "' has no tensor at byte ", chunk.begin);
    return value.toTensor();
  }

  c10::IValue read_value(const Chunk& chunk) {
    auto& file = files_[chunk.file];
    if (file == nullptr) file = std::make_shared<const MappedFile>(folder_ + "/" + chunk.file);
    require(chunk.begin <= file->size() && chunk.size <= file->size() - chunk.begin, Status::kCorrupt, "'",
            file->path(), "' has ", file->size(), " bytes; .metadata says that it has ", chunk.size, " from byte ",
            chunk.begin, " on");
    return read_torch_file(file, file->text().substr(chunk.begin, chunk.size));
  }

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

// A tensor, or a SavedTensor of one in chunks.
c10::IValue join(const std::string& name, const std::vector<int64_t>& shape, const std::vector<Chunk>& chunks,
                 ChunkFiles& files, const std::string& source) {
  c10::intrusive_ptr<TensorInChunks> joined;
  for (const Chunk& chunk : chunks) {
    at::Tensor data = files.read(chunk);
    if (chunks.size() == 1 && data.sizes().equals(shape)) return data;
    if (!joined) joined = c10::make_intrusive<TensorInChunks>(name, data.scalar_type(), shape);
    joined->add(data, chunk.offset.empty() ? std::vector<int64_t>(shape.size(), 0) : chunk.offset, shape, std::nullopt,
                source);
  }
  return tensor::saved_tensor_value(joined);
}

// The key that all names begin with; empty if there is none.
std::string shared_key(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors,
                       const std::map<std::string, Keys>& keys) {
  std::string shared;
  for (const auto& [name, shape] : tensors) {
    const auto found = keys.find(name);
    if (found == keys.end() || found->second.size() < 2 || !found->second.front().isString()) return "";
    const std::string& first = found->second.front().toStringRef();
    if (shared.empty()) shared = first;
    if (first != shared) return "";
  }
  return shared;
}

// A value and its keys.
struct Leaf {
  Keys keys;
  c10::IValue value;
};

// Makes nested maps and lists of what is flat.
class Nesting {
 public:
  explicit Nesting(const std::string& source) : source_(source) {}

  c10::IValue nest(const std::vector<const Leaf*>& leaves, size_t depth) const {
    if (leaves.size() == 1 && leaves[0]->keys.size() == depth) return leaves[0]->value;
    if (depth > static_cast<size_t>(tree::kDeepest)) corrupt("is nested too deep");
    std::map<int64_t, std::vector<const Leaf*>> items;
    std::map<std::string, std::vector<const Leaf*>> members;
    for (const Leaf* const leaf : leaves) {
      if (leaf->keys.size() <= depth) corrupt("is a value and a map");
      const c10::IValue& key = leaf->keys[depth];
      (key.isInt() ? items[key.toInt()] : members[key.toStringRef()]).push_back(leaf);
    }
    if (items.empty()) {
      auto map = tree::new_map();
      for (const auto& [key, below] : members) map.insert(key, nest(below, depth + 1));
      return map;
    }
    if (!members.empty() || items.rbegin()->first + 1 != static_cast<int64_t>(items.size()))
      corrupt("is a list without some of its items");
    auto list = tree::new_list();
    for (const auto& [index, below] : items) list.push_back(nest(below, depth + 1));
    return list;
  }

 private:
  [[noreturn]] void corrupt(const char* what) const {
    fail(Status::kCorrupt, "'", source_, "' is damaged: a part of its state dict ", what);
  }

  const std::string& source_;
};

}  // namespace

bool is_distributed_checkpoint(const std::string& folder) {
  struct stat found {};
  return ::stat((folder + "/" + kDistributedListFile).c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

NamedTensors read_distributed_checkpoint(const std::string& folder) {
  MetadataReader metadata(folder);
  const auto tensors = metadata.tensors();
  const auto chunks = metadata.chunks();
  const std::string first_key = shared_key(tensors, metadata.keys());
  ChunkFiles files(folder);
  NamedTensors result;
  for (const auto& [name, shape] : tensors) {
    const auto found = chunks.find(name);
    require(found != chunks.end(), Status::kCorrupt, "'", metadata.path(), "' does not say where '", name, "' is");
    result.emplace_back(first_key.empty() ? name : name.substr(first_key.size() + 1),
                        read_chunks(join(name, shape, found->second, files, metadata.path())).toTensor());
  }
  return result;
}

c10::IValue read_distributed_state(const std::string& folder, const char* key) {
  require(is_distributed_checkpoint(folder), Status::kCorrupt, "'", folder,
          "' has no .metadata file, so that nothing says what is in it; expected a complete folder of "
          "torch.distributed.checkpoint");
  MetadataReader metadata(folder);
  const auto chunks = metadata.chunks();
  auto keys = metadata.keys();
  ChunkFiles files(folder);
  std::deque<Leaf> leaves;
  std::vector<const Leaf*> all;
  for (const auto& [name, shape] : metadata.shapes()) {
    const auto found = chunks.find(name);
    require(found != chunks.end(), Status::kCorrupt, "'", metadata.path(), "' does not say where '", name, "' is");
    Keys& own = keys[name];
    if (own.empty()) own.emplace_back(name);
    leaves.push_back({std::move(own), shape ? join(name, *shape, found->second, files, metadata.path())
                                            : files.read_value(found->second.front())});
    all.push_back(&leaves.back());
  }
  require(!all.empty(), Status::kCorrupt, "'", metadata.path(), "' names nothing; expected a state dict");
  const c10::IValue nested = Nesting(metadata.path()).nest(all, 0);
  if (!nested.isGenericDict()) return nested;
  const auto members = nested.toGenericDict();
  const auto named = members.find(std::string(key));
  if (named != members.end() && named->value().isGenericDict()) return named->value();
  const bool is_below_a_key = members.size() == 1 && members.begin()->value().isGenericDict();
  return is_below_a_key ? members.begin()->value() : nested;
}

}  // namespace accel::checkpoint
