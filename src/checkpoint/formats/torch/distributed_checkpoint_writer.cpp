// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/distributed_checkpoint_writer.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"
#include "checkpoint/formats/torch/pickle_stream.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "json/json.hpp"
#include "os/mapped_file.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kChunkExtension = ".distcp";
constexpr const char* kVersion = "1.0.0";  // of the format
constexpr uint64_t kChunkAlignment = 64;   // in the file, so that tensors can be used as they are mapped
constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFilesModule = "torch.distributed.checkpoint.filesystem";

using Shape = std::vector<int64_t>;

// A value of a state dict, as the ranks tell each other. The keys are texts, and numbers of items of lists.
struct Written {
  Json keys;
  std::string dtype;  // empty: no tensor
  Shape shape;
  Shape offset;
  Shape sizes;
  std::string file;
  int64_t begin;
  int64_t length;
};

Json list_of_numbers(const Shape& numbers) {
  Json::Items items;
  for (const int64_t number : numbers) items.push_back(Json::number(number));
  return Json(std::move(items));
}

Shape numbers_of(const Json& object, const char* key) {
  Shape numbers;
  for (const Json& item : *json_member(object, key)->items()) numbers.push_back(*item.integer());
  return numbers;
}

Json print(const Written& written) {
  return Json(Json::Members{{"keys", written.keys},
                            {"dtype", Json(written.dtype)},
                            {"shape", list_of_numbers(written.shape)},
                            {"offset", list_of_numbers(written.offset)},
                            {"sizes", list_of_numbers(written.sizes)},
                            {"file", Json(written.file)},
                            {"begin", Json::number(written.begin)},
                            {"length", Json::number(written.length)}});
}

Written parse(const Json& object) {
  return {*json_member(object, "keys"),     json_text(object, "dtype", ""),   numbers_of(object, "shape"),
          numbers_of(object, "offset"),     numbers_of(object, "sizes"),      json_text(object, "file", ""),
          json_integer(object, "begin", 0), json_integer(object, "length", 0)};
}

// torch's name of a value: its keys with points between them.
std::string full_name(const Json& keys) {
  std::string name;
  for (const Json& key : *keys.items())
    name += (name.empty() ? "" : ".") + (key.text() != nullptr ? *key.text() : std::to_string(*key.integer()));
  return name;
}

class ChunksWriter {
 public:
  ChunksWriter(std::string folder, int rank, bool all, FileSystem& files)
      : folder_(std::move(folder)), name_(text("__", rank, "_0", kChunkExtension)), all_(all), files_(files) {}

  // Flattens as torch does: maps are entered, and lists that have a tensor or a map; all else is a value.
  void add(const c10::IValue& value, Json::Items& keys) {
    require(keys.size() <= static_cast<size_t>(tree::kDeepest), Status::kInvalidArgument,
            "a value is nested more than ", tree::kDeepest, " levels deep");
    if (value.isGenericDict())
      for (const auto& member : value.toGenericDict())
        add_below(member.value(), keys,
                  Json(member.key().isInt() ? std::to_string(member.key().toInt()) : member.key().toStringRef()));
    else if (value.isList() && is_entered(value))
      for (size_t i = 0; i < value.toListRef().size(); i++)
        add_below(value.toListRef()[i], keys, Json::number(static_cast<int64_t>(i)));
    else
      write(value, keys);
  }

  std::string finish() {
    if (output_ != nullptr) {
      output_->finish();
      read_back(output_->path(), [&] { return is_as_written(*output_); });
    }
    return print_json(Json(std::move(written_)));
  }

 private:
  static bool is_entered(const c10::IValue& list) {
    const auto items = list.toListRef();
    return std::any_of(items.begin(), items.end(), [](const c10::IValue& item) {
      return item.isGenericDict() || item.isTensor() || tensor::chunk_of(item) != nullptr ||
             (item.isList() && is_entered(item));
    });
  }

  // A tensor without elements has one chunk, so that its name is there.
  static bool is_empty(const Shape& shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

  void add_below(const c10::IValue& value, Json::Items& keys, Json key) {
    keys.push_back(std::move(key));
    add(value, keys);
    keys.pop_back();
  }

  void write(const c10::IValue& value, const Json::Items& keys) {
    const tensor::TensorChunk* const chunk = tensor::chunk_of(value);
    if (chunk == nullptr) {
      if (!all_) return;
      const at::Tensor data = value.isTensor() ? value.toTensor() : at::Tensor();
      if (data.defined())
        write(keys, data, data.sizes().vec(), Shape(static_cast<size_t>(data.dim()), 0));
      else
        append(Written{Json(keys), "", {}, {}, {}, name_, 0, 0}, value);
      return;
    }
    for (const tensor::PlacedBox& box : chunk->placement->boxes)
      if (box.counts && (!tensor::is_empty(box.whole) || (all_ && is_empty(chunk->placement->shape))))
        write(keys, chunk->part(box), chunk->placement->shape, box.whole.offset);
  }

  void write(const Json::Items& keys, const at::Tensor& data, const Shape& shape, const Shape& offset) {
    append(Written{Json(keys), tensor::dtype_name(data.scalar_type()), shape, offset, data.sizes().vec(), name_, 0, 0},
           data.detach());
  }

  void append(Written written, const c10::IValue& value) {
    if (output_ == nullptr) output_ = std::make_unique<OutputFile>(folder_ + "/" + name_, files_);
    const std::string gap((kChunkAlignment - output_->size() % kChunkAlignment) % kChunkAlignment, '\0');
    output_->write(gap.data(), gap.size());
    written.begin = static_cast<int64_t>(output_->size());
    write_torch_file(*output_, value);
    written.length = static_cast<int64_t>(output_->size()) - written.begin;
    written_.push_back(print(written));
  }

  std::string folder_;
  std::string name_;
  bool all_;
  FileSystem& files_;
  std::unique_ptr<OutputFile> output_;
  Json::Items written_;
};

// The pickle of a Metadata, of its fields those that all versions of torch since 2.1 read.
class ListPickle {
 public:
  explicit ListPickle(const std::vector<std::string>& written) {
    for (const std::string& of_rank : written) {
      const Json list = parse_json(of_rank, "the list of a rank's chunks");
      for (const Json& item : *list.items()) add(parse(item));
    }
    for (const Value& value : values_) check_complete(value);
  }

  std::string print() {
    add_object(kMetadataModule, "Metadata", [&] {
      add_map("state_dict_metadata", [&](const Value& value) { add_kind(value); });
      add_map("planner_data", [&](const Value& value) { add_keys(value.parts.front().keys); });
      pickle_.add_text("storage_data");
      pickle_.begin_map();
      for (const Value& value : values_)
        for (size_t i = 0; i < value.parts.size(); i++) add_place(value, i);
      pickle_.set_member();
      add_member("storage_meta", [&] { pickle_.add_none(); });
      add_member("version", [&] { pickle_.add_text(kVersion); });
    });
    return pickle_.take();
  }

 private:
  struct Value {
    std::string name;
    std::vector<Written> parts;  // one, unless it is a tensor

    bool is_tensor() const { return !parts.front().dtype.empty(); }
  };

  void add(Written written) {
    std::string name = full_name(written.keys);
    const auto [place, is_new] = places_.emplace(name, values_.size());
    if (is_new) values_.push_back({std::move(name), {}});
    values_[place->second].parts.push_back(std::move(written));
  }

  static void check_complete(const Value& value) {
    int64_t found = 0;
    for (const Written& part : value.parts) {
      require(part.shape == value.parts.front().shape && part.dtype == value.parts.front().dtype, Status::kInternal,
              "the ranks have chunks of '", value.name, "' of different shapes or dtypes");
      found += c10::multiply_integers(part.sizes);
    }
    const bool is_whole =
        value.is_tensor() ? found == c10::multiply_integers(value.parts.front().shape) : value.parts.size() == 1;
    require(is_whole, Status::kInternal, "the ranks wrote ", found, " elements of '", value.name, "'; expected ",
            c10::multiply_integers(value.parts.front().shape));
  }

  template <typename Add>
  void add_member(std::string_view name, const Add& add) {
    pickle_.add_text(name);
    add();
    pickle_.set_member();
  }

  template <typename Add>
  void add_object(std::string_view module, std::string_view class_name, const Add& add_members) {
    pickle_.begin_object(module, class_name);
    pickle_.begin_map();
    add_members();
    pickle_.set_state();
  }

  // {name: what `add` adds}
  template <typename Add>
  void add_map(std::string_view name, const Add& add) {
    add_member(name, [&] {
      pickle_.begin_map();
      for (const Value& value : values_) add_member(value.name, [&] { add(value); });
    });
  }

  void add_shape(const Shape& shape) {
    pickle_.add_name("torch", "Size");
    pickle_.begin_tuple();
    pickle_.add_tuple(shape);
    pickle_.end_tuple();
    pickle_.call();
  }

  void add_keys(const Json& keys) {
    pickle_.begin_tuple();
    for (const Json& key : *keys.items())
      if (key.text() != nullptr)
        pickle_.add_text(*key.text());
      else
        pickle_.add_integer(*key.integer());
    pickle_.end_tuple();
  }

  void add_kind(const Value& value) {
    if (!value.is_tensor()) return add_object(kMetadataModule, "BytesStorageMetadata", [] {});
    add_object(kMetadataModule, "TensorStorageMetadata", [&] {
      add_member("properties", [&] { add_properties(value.parts.front().dtype); });
      add_member("size", [&] { add_shape(value.parts.front().shape); });
      add_member("chunks", [&] {
        pickle_.begin_list();
        for (const Written& part : value.parts) {
          add_object(kMetadataModule, "ChunkStorageMetadata", [&] {
            add_member("offsets", [&] { add_shape(part.offset); });
            add_member("sizes", [&] { add_shape(part.sizes); });
          });
          pickle_.append();
        }
      });
    });
  }

  // dtype, layout, requires_grad, memory_format, pin_memory
  void add_properties(const std::string& dtype) {
    pickle_.begin_object(kMetadataModule, "TensorProperties");
    pickle_.begin_tuple();
    pickle_.add_name("torch", dtype);
    add_call("torch.serialization", "_get_layout", [&] { pickle_.add_text("torch.strided"); });
    pickle_.add_bool(false);
    add_call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { pickle_.add_integer(0); });  // contiguous
    pickle_.add_bool(false);
    pickle_.end_tuple();
    pickle_.set_state();
  }

  template <typename Add>
  void add_call(std::string_view module, std::string_view name, const Add& add_argument) {
    pickle_.add_name(module, name);
    pickle_.begin_tuple();
    add_argument();
    pickle_.end_tuple();
    pickle_.call();
  }

  void add_place(const Value& value, size_t index) {
    const Written& part = value.parts[index];
    add_object(kMetadataModule, "MetadataIndex", [&] {
      add_member("fqn", [&] { pickle_.add_text(value.name); });
      add_member("offset", [&] { value.is_tensor() ? add_shape(part.offset) : pickle_.add_none(); });
      add_member("index",
                 [&] { value.is_tensor() ? pickle_.add_integer(static_cast<int64_t>(index)) : pickle_.add_none(); });
    });
    add_object(kFilesModule, "_StorageInfo", [&] {
      add_member("relative_path", [&] { pickle_.add_text(part.file); });
      add_member("offset", [&] { pickle_.add_integer(part.begin); });
      add_member("length", [&] { pickle_.add_integer(part.length); });
      add_member("transform_descriptors", [&] { pickle_.add_none(); });
    });
    pickle_.set_member();
  }

  PickleStream pickle_;
  std::vector<Value> values_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

std::string write_distributed_chunks(const std::string& folder, int rank, const c10::IValue& state_dict, bool all,
                                     FileSystem& files) {
  ChunksWriter writer(folder, rank, all, files);
  Json::Items keys;
  writer.add(state_dict, keys);
  return writer.finish();
}

void write_distributed_list(const std::string& folder, const std::vector<std::string>& written, FileSystem& files) {
  const std::string document = ListPickle(written).print();
  OutputFile output(folder + "/" + kDistributedListFile, files);
  output.write(document.data(), document.size());
  output.finish();
  read_back(output.path(), [&] { return MappedFile(output.path()).text() == document; });
}

bool is_distributed_file(const std::string& name) {
  return name == kDistributedListFile || has_extension(name, kChunkExtension);
}

}  // namespace accel::checkpoint
