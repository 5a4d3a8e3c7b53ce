// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_file.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/files/content_hash.hpp"
#include "checkpoint/manifest.hpp"
#include "json/json.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

using tensor::Box;
using tensor::SavedTensor;
using tensor::TensorChunk;

constexpr const char* kChunks = "accel.chunks";  // the key of the metadata
constexpr const char* kChunkHash = "xxh3_64";
constexpr const char* kReference = "accel.chunk_of:";  // what a reference begins with

// The box that both have.
std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common;
  for (size_t i = 0; i < a.offset.size(); i++) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.sizes[i], b.offset[i] + b.sizes[i]);
    if (begin >= end) return std::nullopt;
    common.offset.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

// The part of the tensor of `outer` that is `inner`.
at::Tensor part(at::Tensor tensor, const Box& outer, const Box& inner) {
  for (size_t i = 0; i < inner.offset.size(); i++)
    tensor = tensor.narrow(static_cast<int64_t>(i), inner.offset[i] - outer.offset[i], inner.sizes[i]);
  return tensor;
}

Json list_of(const std::vector<int64_t>& numbers) {
  Json::Items items;
  for (const int64_t number : numbers) items.push_back(Json::number(number));
  return Json(std::move(items));
}

std::vector<int64_t> numbers_of(const Json& object, const char* key, const std::string& source) {
  const Json* const list = json_member(object, key);
  require(list != nullptr && list->items() != nullptr, Status::kCorrupt, "'", source, "' is damaged: a chunk has no '",
          key, "'");
  std::vector<int64_t> numbers;
  for (const Json& item : *list->items()) {
    require(item.integer() && *item.integer() >= 0, Status::kCorrupt, "'", source, "' is damaged: '", key,
            "' of a chunk is not a list of sizes");
    numbers.push_back(*item.integer());
  }
  return numbers;
}

Json describe(const std::string& name, const std::vector<int64_t>& shape, const Box& box, uint64_t hash) {
  Json::Members members;
  members.emplace_back("tensor", name);
  members.emplace_back("global_shape", list_of(shape));
  members.emplace_back("offset", list_of(box.offset));
  members.emplace_back(kChunkHash, print_hash(hash));
  return Json(std::move(members));
}

// Takes the chunks out of a tree; their names are their paths.
class Splitter {
 public:
  c10::IValue split(const c10::IValue& value, const std::string& path, int depth) {
    require(depth <= tree::kDeepest, Status::kInvalidArgument, "a value is nested more than ", tree::kDeepest,
            " levels deep");
    if (const TensorChunk* const chunk = tensor::chunk_of(value)) return take(*chunk, path);
    if (tree::is_sequence(value)) {
      std::vector<c10::IValue> items;
      for (const c10::IValue& item : tree::sequence_items(value))
        items.push_back(split(item, tree::path_below(path, std::to_string(items.size())), depth + 1));
      return tree::sequence_like(value, std::move(items));
    }
    if (!value.isGenericDict()) return value;
    std::vector<std::pair<c10::IValue, c10::IValue>> members;
    for (const auto& member : value.toGenericDict()) {
      const std::string key = member.key().isInt() ? std::to_string(member.key().toInt()) : member.key().toStringRef();
      members.emplace_back(member.key(), split(member.value(), tree::path_below(path, key), depth + 1));
    }
    return tree::new_map(std::move(members));
  }

  SafetensorsContents finish() {
    contents_.metadata = {{"format", "pt"}, {kChunks, print_json(Json(std::move(described_)))}};
    return std::move(contents_);
  }

 private:
  std::string take(const TensorChunk& chunk, const std::string& path) {
    size_t number = 0;
    for (const tensor::PlacedBox& box : chunk.placement->boxes) {
      if (!box.counts) continue;
      // A contiguous chunk stays on its accelerator; it is read for the hash, and again for the file.
      at::Tensor data = chunk.part(box).detach();
      if (data.is_cpu() || !data.is_contiguous()) data = dense_on_cpu(data);
      ContentHash hash;
      visit_elements(data, [&hash](const char* part, size_t size) { hash.add(part, size); });
      const std::string name = number == 0 ? path : path + "#" + std::to_string(number);
      described_.emplace_back(name, describe(path, chunk.placement->shape, box.whole, hash.value()));
      contents_.tensors.emplace_back(name, data);
      number++;
    }
    return kReference + path;
  }

  SafetensorsContents contents_;
  Json::Members described_;
};

}  // namespace

bool has_chunks(const c10::IValue& state) {
  bool found = false;
  tree::for_each_leaf(state, [&](const c10::IValue& leaf) { found = found || tensor::chunk_of(leaf) != nullptr; });
  return found;
}

SplitState split_chunks(const c10::IValue& state, bool is_model) {
  Splitter splitter;
  SplitState split;
  split.rest = splitter.split(state, "", 0);
  if (is_model) {
    auto others = tree::new_map();
    for (const auto& member : split.rest.toGenericDict())
      if (member.value().isTensor()) others.insert(member.key(), member.value());
    split.rest = others;
  }
  split.chunks = splitter.finish();
  return split;
}

void TensorInChunks::add(const at::Tensor& data, std::vector<int64_t> offset, const std::vector<int64_t>& shape,
                         std::optional<uint64_t> hash, const std::string& source) {
  Box box{std::move(offset), data.sizes().vec()};
  bool fits = data.scalar_type() == dtype_ && shape == shape_ && box.offset.size() == shape.size() &&
              box.sizes.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); i++)
    fits = box.sizes[i] <= shape[i] && box.offset[i] <= shape[i] - box.sizes[i];
  require(fits, Status::kCorrupt, "'", source, "' is damaged: a chunk of '", name_, "' does not fit ", dtype_, " ",
          c10::IntArrayRef(shape_));
  for (const Chunk& other : chunks_)
    require(!intersection(box, other.box), Status::kCorrupt, "'", source, "' is damaged: a chunk of '", name_,
            "' overlaps another");
  chunks_.push_back({std::move(box), data, source, hash});
}

void TensorInChunks::verify(const Chunk& chunk) const {
  if (!chunk.hash) return;
  require(hash_of(chunk.data.const_data_ptr(), chunk.data.nbytes()) == *chunk.hash, Status::kCorrupt, "'", chunk.source,
          "' is damaged: the chunk of '", name_, "' does not have the hash that was written");
  chunk.hash.reset();
}

template <typename Visit>
void TensorInChunks::for_each_part(const Box& box, const Visit& visit) const {
  require(box.offset.size() == shape_.size() && box.sizes.size() == shape_.size(), Status::kShapeMismatch, "'", name_,
          "' has ", shape_.size(), " dimensions, not ", box.sizes.size());
  int64_t missing = c10::multiply_integers(box.sizes);
  for (const Chunk& chunk : chunks_) {
    const auto common = intersection(chunk.box, box);
    if (!common) continue;
    verify(chunk);
    visit(chunk, *common);
    missing -= c10::multiply_integers(common->sizes);
  }
  require(missing == 0, Status::kCorrupt, "the checkpoint lacks ", missing, " elements of '", name_,
          "'; a file with chunks is missing");
}

at::Tensor TensorInChunks::read(const Box& box) const {
  at::Tensor result = at::empty(box.sizes, dtype_);
  for_each_part(box, [&](const Chunk& chunk, const Box& common) {
    part(result, box, common).copy_(part(chunk.data, chunk.box, common));
  });
  return result;
}

void TensorInChunks::check(const Box& box) const {
  for_each_part(box, [](const Chunk&, const Box&) {});
}

void ChunkTable::add(const std::shared_ptr<const MappedFile>& file) {
  const SafetensorsContents contents = read_safetensors(file);
  const auto found = std::find_if(contents.metadata.begin(), contents.metadata.end(),
                                  [](const auto& entry) { return entry.first == kChunks; });
  require(found != contents.metadata.end(), Status::kCorrupt, "'", file->path(),
          "' holds no chunks: its metadata have no '", kChunks, "'");
  Json described;
  try {
    described = parse_json(found->second, kChunks);
  } catch (const Error& error) {
    fail(Status::kCorrupt, "'", file->path(), "' is damaged: ", error.message());
  }
  for (const auto& [key, data] : contents.tensors) {
    const Json* const chunk = described.members() == nullptr ? nullptr : json_member(described, key);
    require(chunk != nullptr && chunk->members() != nullptr, Status::kCorrupt, "'", file->path(),
            "' is damaged: it does not say where '", key, "' belongs");
    const std::string name = json_text(*chunk, "tensor", key);
    const std::vector<int64_t> shape = numbers_of(*chunk, "global_shape", file->path());
    auto& chunks = tensors_[name];
    if (!chunks) {
      chunks = c10::make_intrusive<TensorInChunks>(name, data.scalar_type(), shape);
      names_.push_back(name);
    }
    const uint64_t hash = parse_hash(json_text(*chunk, kChunkHash, ""), file->path());
    chunks->add(data, numbers_of(*chunk, "offset", file->path()), shape, verify_ ? std::optional(hash) : std::nullopt,
                file->path());
  }
}

c10::IValue ChunkTable::join(const c10::IValue& rest, bool is_model) const {
  const auto value_of = [this](const std::string& name) {
    return tensor::saved_tensor_value(c10::intrusive_ptr<SavedTensor>(tensors_.at(name)));
  };
  if (is_model) {
    auto all = tree::new_map();
    for (const auto& member : rest.toGenericDict()) all.insert(member.key(), member.value());
    for (const std::string& name : names_) all.insert(name, value_of(name));
    return all;
  }
  const std::string start = kReference;
  return tree::map_leaves(rest, [&](const c10::IValue& leaf) {
    if (!leaf.isString() || !starts_with(leaf.toStringRef(), start)) return leaf;
    const std::string name = leaf.toStringRef().substr(start.size());
    require(tensors_.count(name) > 0, Status::kCorrupt, "the checkpoint lacks the chunks of '", name,
            "'; a file with chunks is missing");
    return value_of(name);
  });
}

c10::IValue read_chunks(const c10::IValue& state) {
  return tree::map_leaves(state, [](const c10::IValue& leaf) {
    const SavedTensor* const saved = tensor::saved_tensor_of(leaf);
    if (saved == nullptr) return leaf;
    return c10::IValue(saved->read({std::vector<int64_t>(saved->shape().size(), 0), saved->shape()}));
  });
}

}  // namespace accel::checkpoint
