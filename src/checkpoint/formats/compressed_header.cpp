// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/compressed_header.hpp"

#include <limits>
#include <utility>

#include "base/error.hpp"
#include "json/json.hpp"
#include "tensor/dtype.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kLengthSize = 8;

Json encode_header(const CompressedHeader& contents) {
  Json::Members texts;
  for (const auto& [key, text] : contents.metadata) texts.emplace_back(key, text);
  Json::Items tensors;
  for (const CompressedEntry& entry : contents.tensors) {
    Json::Items shape, blocks;
    for (const int64_t size : entry.shape) shape.push_back(Json::number(size));
    for (const uint64_t size : entry.block_sizes) blocks.push_back(Json::number(static_cast<int64_t>(size)));
    Json::Members members;
    members.emplace_back("name", entry.name);
    members.emplace_back("dtype", tensor::dtype_name(entry.dtype));
    members.emplace_back("shape", std::move(shape));
    members.emplace_back("offset", Json::number(static_cast<int64_t>(entry.offset)));
    members.emplace_back("shuffle", Json::number(static_cast<int64_t>(entry.shuffle)));
    members.emplace_back("blocks", std::move(blocks));
    tensors.emplace_back(std::move(members));
  }
  Json::Members header;
  header.emplace_back("metadata", std::move(texts));
  header.emplace_back("tensors", std::move(tensors));
  return Json(std::move(header));
}

// Reads the header, with checked arithmetic.
class CompressedParser {
 public:
  CompressedParser(std::string_view file, const std::string& source) : file_(file), source_(source) {}

  CompressedHeader parse() {
    constexpr uint64_t kFrame = 2 * kCompressedMagic.size() + kLengthSize;
    if (file_.size() < kFrame || file_.substr(0, kCompressedMagic.size()) != kCompressedMagic ||
        file_.substr(file_.size() - kCompressedMagic.size()) != kCompressedMagic)
      damaged("it is not a file of compressed tensors, or was cut short");
    uint64_t length = 0;
    const std::string_view digits = file_.substr(file_.size() - kCompressedMagic.size() - kLengthSize, kLengthSize);
    for (uint64_t i = 0; i < kLengthSize; i++) length |= uint64_t{static_cast<uint8_t>(digits[i])} << (8 * i);
    if (length > file_.size() - kFrame) damaged("its header has ", length, " bytes");
    end_ = file_.size() - kCompressedMagic.size() - kLengthSize - length;
    const Json json = parse_json(file_.substr(end_, length), "its header");
    return {read_metadata(member(json, "metadata")), read_tensors(member(json, "tensors"))};
  }

 private:
  template <typename... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is damaged: ", parts...);
  }

  const Json& member(const Json& object, const char* key) const {
    const Json* const found = object.members() == nullptr ? nullptr : json_member(object, key);
    if (found == nullptr) damaged("its header has no '", key, "'");
    return *found;
  }

  uint64_t number(const Json& node, const char* what) const {
    if (!node.integer() || *node.integer() < 0) damaged("'", what, "' is not a number of at least 0");
    return static_cast<uint64_t>(*node.integer());
  }

  const Json::Items& items(const Json& node, const char* what) const {
    if (node.items() == nullptr) damaged("'", what, "' is not a list");
    return *node.items();
  }

  Metadata read_metadata(const Json& node) const {
    Metadata metadata;
    if (node.members() == nullptr) damaged("its metadata are not an object");
    for (const auto& [key, text] : *node.members()) {
      if (text.text() == nullptr) damaged("'", key, "' of its metadata is not text");
      metadata.emplace_back(key, *text.text());
    }
    return metadata;
  }

  std::vector<CompressedEntry> read_tensors(const Json& node) const {
    std::vector<CompressedEntry> tensors;
    uint64_t position = kCompressedMagic.size();
    for (const Json& item : items(node, "tensors")) {
      tensors.push_back(read_tensor(item));
      const CompressedEntry& entry = tensors.back();
      // In their order, with less than an alignment between them.
      if (entry.offset < position || entry.offset - position >= kUncompressedAlignment || entry.offset > end_)
        damaged("'", entry.name, "' begins at ", entry.offset, "; expected ", position);
      const uint64_t stored = stored_bytes(entry);
      if (stored > end_ - entry.offset) damaged("'", entry.name, "' does not fit");
      position = entry.offset + stored;
    }
    if (position != end_) damaged("bytes ", position, " to ", end_, " belong to no tensor");
    return tensors;
  }

  CompressedEntry read_tensor(const Json& node) const {
    CompressedEntry entry;
    const Json& name = member(node, "name");
    if (name.text() == nullptr) damaged("the name of a tensor is not text");
    entry.name = *name.text();
    const Json& dtype = member(node, "dtype");
    const tensor::Dtype* const found = dtype.text() == nullptr ? nullptr : tensor::find_dtype(*dtype.text());
    if (found == nullptr) damaged("'", entry.name, "' has no known dtype");
    entry.dtype = found->type;
    entry.bytes = found->size;
    bool fits = true;
    for (const Json& size : items(member(node, "shape"), "shape")) {
      entry.shape.push_back(static_cast<int64_t>(number(size, "shape")));
      fits = fits && !__builtin_mul_overflow(entry.bytes, static_cast<uint64_t>(entry.shape.back()), &entry.bytes);
    }
    if (!fits || entry.bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      damaged("the shape of '", entry.name, "' is too large");
    entry.offset = number(member(node, "offset"), "offset");
    entry.shuffle = number(member(node, "shuffle"), "shuffle");
    if (entry.shuffle != 1 && entry.shuffle != shuffle_of(entry.dtype))
      damaged("'", entry.name, "' is shuffled by ", entry.shuffle, " bytes");
    for (const Json& size : items(member(node, "blocks"), "blocks"))
      entry.block_sizes.push_back(number(size, "blocks"));
    if (!entry.block_sizes.empty() && entry.block_sizes.size() != entry.num_blocks())
      damaged("'", entry.name, "' has ", entry.block_sizes.size(), " blocks; expected ", entry.num_blocks());
    return entry;
  }

  uint64_t stored_bytes(const CompressedEntry& entry) const {
    if (entry.block_sizes.empty()) return entry.bytes;
    uint64_t total = 0;
    for (uint64_t block = 0; block < entry.block_sizes.size(); block++) {
      if (entry.block_sizes[block] > entry.block_bytes(block)) damaged("a block of '", entry.name, "' is too large");
      total += entry.block_sizes[block];
    }
    return total;
  }

  std::string_view file_;
  const std::string& source_;
  uint64_t end_ = 0;  // of the tensors
};

}  // namespace

uint64_t shuffle_of(at::ScalarType dtype) {
  if (at::isComplexType(dtype)) return c10::elementSize(dtype) / 2;
  return at::isFloatingType(dtype) ? c10::elementSize(dtype) : 1;
}

CompressedHeader parse_compressed_header(std::string_view file, const std::string& source) {
  try {
    return CompressedParser(file, source).parse();
  } catch (const Error& error) {
    if (error.status() == Status::kCorrupt) throw;
    fail(Status::kCorrupt, "'", source, "' is damaged: ", error.message());
  }
}

std::string print_compressed_header(const CompressedHeader& header) {
  std::string printed = print_json(encode_header(header));
  const uint64_t length = printed.size();
  for (uint64_t i = 0; i < kLengthSize; i++) printed += static_cast<char>(length >> (8 * i) & 0xff);
  return printed.append(kCompressedMagic);
}

}  // namespace accel::checkpoint
