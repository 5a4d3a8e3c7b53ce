// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/gguf/gguf_header.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <unordered_set>

#include "base/error.hpp"
#include "base/text_check.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMostGgufDimensions = 4;
constexpr int kDeepestArray = 4;
constexpr uint64_t kAlignment = 32;
constexpr uint64_t kLargestAlignment = 1 << 20;

constexpr GgufBlock kBlocks[] = {
    {GgufType::kFloat32, "F32", 1, 4},  {GgufType::kFloat16, "F16", 1, 2},  {GgufType::kBFloat16, "BF16", 1, 2},
    {GgufType::kQ40, "Q4_0", 32, 18},   {GgufType::kQ41, "Q4_1", 32, 20},   {GgufType::kQ50, "Q5_0", 32, 22},
    {GgufType::kQ51, "Q5_1", 32, 24},   {GgufType::kQ80, "Q8_0", 32, 34},   {GgufType::kQ4K, "Q4_K", 256, 144},
    {GgufType::kQ5K, "Q5_K", 256, 176}, {GgufType::kQ6K, "Q6_K", 256, 210},
};

const GgufBlock* find_block(uint32_t type) {
  const auto* found = std::find_if(std::begin(kBlocks), std::end(kBlocks),
                                   [&](const GgufBlock& block) { return static_cast<uint32_t>(block.type) == type; });
  return found == std::end(kBlocks) ? nullptr : found;
}

enum class ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kFlag,
  kText,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

class GgufParser {
 public:
  GgufParser(std::string_view file, const std::string& source) : file_(file), source_(source) {}

  GgufHeader parse() {
    if (take(kMagic.size(), "its first letters") != kMagic) corrupt("it does not begin with ", kMagic);
    const auto version = number<uint32_t>("its version");
    require((version & 0xffff) != 0, Status::kUnsupported, "'", source_,
            "' is a GGUF file of a big-endian machine; expected one that was converted for little-endian ones");
    require(version == 2 || version == 3, Status::kUnsupported, "'", source_, "' is a GGUF file of version ", version,
            "; expected version 2 or 3");
    const auto tensors = number<uint64_t>("the number of tensors"), entries = number<uint64_t>("the number of entries");
    Json::Members metadata;
    std::unordered_set<std::string> keys;
    for (uint64_t i = 0; i < entries; i++) {
      std::string key = text("a key");
      if (!keys.insert(key).second) corrupt("its metadata has '", key, "' twice");
      Json entry = value(number<uint32_t>("a type of metadata"), 0, key);
      metadata.emplace_back(std::move(key), std::move(entry));
    }
    header_.metadata = Json(std::move(metadata));
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < tensors; i++) {
      header_.tensors.push_back(tensor());
      if (!names.insert(header_.tensors.back().name).second)
        corrupt("it has the tensor '", header_.tensors.back().name, "' twice");
    }
    place_tensors();
    return std::move(header_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is not a valid GGUF file: ", parts...);
  }

  std::string_view take(uint64_t bytes, const char* what) {
    if (bytes > file_.size() - place_)
      corrupt("it ends inside ", what, ", which takes ", bytes, " bytes from byte ", place_, " on");
    const std::string_view taken = file_.substr(place_, bytes);
    place_ += bytes;
    return taken;
  }

  template <typename Number>
  Number number(const char* what) {
    Number result;
    std::memcpy(&result, take(sizeof(result), what).data(), sizeof(result));
    return result;
  }

  std::string_view bytes(const char* what) { return take(number<uint64_t>(what), what); }

  std::string text(const char* what) {
    std::string result(bytes(what));
    if (first_bad_byte(result) != result.size()) corrupt(what, " is not UTF-8");
    return result;
  }

  template <typename Number>
  Json numeric() {
    const auto read = number<Number>("the metadata");
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(read)) return Json(std::isnan(read) ? "nan" : read > 0 ? "inf" : "-inf");
      return Json::number(static_cast<double>(read));
    } else if constexpr (std::is_same_v<Number, uint64_t>) {
      return Json::number_of(std::to_string(read));
    } else {
      return Json::number(static_cast<int64_t>(read));
    }
  }

  Json value(uint32_t type, int depth, const std::string& key) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::kUint8:
        return numeric<uint8_t>();
      case ValueType::kInt8:
        return numeric<int8_t>();
      case ValueType::kUint16:
        return numeric<uint16_t>();
      case ValueType::kInt16:
        return numeric<int16_t>();
      case ValueType::kUint32:
        return numeric<uint32_t>();
      case ValueType::kInt32:
        return numeric<int32_t>();
      case ValueType::kFloat32:
        return numeric<float>();
      case ValueType::kFlag: {
        const auto flag = number<uint8_t>("the metadata");
        if (flag > 1) corrupt("'", key, "' is ", int{flag}, "; expected 0 or 1");
        return Json(flag == 1);
      }
      case ValueType::kText:
        return Json(repaired_text(bytes("a text of the metadata")));
      case ValueType::kArray:
        return array(depth + 1, key);
      case ValueType::kUint64:
        return numeric<uint64_t>();
      case ValueType::kInt64:
        return numeric<int64_t>();
      case ValueType::kFloat64:
        return numeric<double>();
    }
    corrupt("'", key, "' has the type ", type, ", which the format does not have");
  }

  Json array(int depth, const std::string& key) {
    if (depth > kDeepestArray) corrupt("'", key, "' has arrays in arrays deeper than ", kDeepestArray);
    const auto type = number<uint32_t>("the type of an array");
    const auto count = number<uint64_t>("the length of an array");
    // Each element takes a byte at least, so that a wrong length takes no memory.
    if (count > file_.size() - place_) corrupt("'", key, "' has ", count, " elements, more than the file has bytes");
    Json::Items items;
    for (uint64_t i = 0; i < count; i++) items.push_back(value(type, depth, key));
    return Json(std::move(items));
  }

  // The range is relative until place_tensors().
  GgufTensorEntry tensor() {
    GgufTensorEntry entry;
    entry.name = text("the name of a tensor");
    const auto dimensions = number<uint32_t>("the number of dimensions");
    if (dimensions > kMostGgufDimensions)
      corrupt("the tensor '", entry.name, "' has ", dimensions, " dimensions; expected at most ", kMostGgufDimensions);
    uint64_t numbers = 1;
    for (uint32_t i = 0; i < dimensions; i++) {
      const auto size = number<uint64_t>("a dimension");
      if (__builtin_mul_overflow(numbers, size, &numbers) || numbers > uint64_t{INT64_MAX} ||
          size > uint64_t{INT64_MAX})
        corrupt("the shape of the tensor '", entry.name, "' is too large");
      entry.shape.insert(entry.shape.begin(), static_cast<int64_t>(size));
    }
    const auto type = number<uint32_t>("the type of a tensor");
    const GgufBlock* const block = find_block(type);
    if (block == nullptr) {
      std::string known;
      for (const GgufBlock& one : kBlocks) known += (known.empty() ? "" : ", ") + std::string(one.name);
      fail(Status::kUnsupported, "the tensor '", entry.name, "' of '", source_, "' has the GGUF type ", type,
           "; expected one of ", known);
    }
    entry.type = block->type;
    const uint64_t row = entry.shape.empty() ? 1 : static_cast<uint64_t>(entry.shape.back());
    const auto in_block = static_cast<uint64_t>(block->numbers);
    if (row % in_block != 0)
      corrupt("the tensor '", entry.name, "' of type ", block->name, " has rows of ", row,
              " numbers; expected a multiple of ", in_block);
    entry.begin = number<uint64_t>("the offset of a tensor");
    if (__builtin_mul_overflow(numbers / in_block, static_cast<uint64_t>(block->bytes), &numbers) ||
        __builtin_add_overflow(entry.begin, numbers, &entry.end))
      corrupt("the range of the tensor '", entry.name, "' is too large");
    return entry;
  }

  void place_tensors() {
    const Json* const given = json_member(header_.metadata, "general.alignment");
    const auto wanted = given == nullptr ? std::optional<int64_t>(kAlignment) : given->integer();
    if (!wanted || *wanted < 1 || static_cast<uint64_t>(*wanted) > kLargestAlignment)
      corrupt("general.alignment is not an integer from 1 to ", kLargestAlignment);
    const auto alignment = static_cast<uint64_t>(*wanted);
    const uint64_t data = (place_ + alignment - 1) / alignment * alignment;
    for (GgufTensorEntry& entry : header_.tensors) {
      if (entry.begin % alignment != 0)
        corrupt("the tensor '", entry.name, "' begins at ", entry.begin, ", which is no multiple of ", alignment);
      if (data > file_.size() || entry.end > file_.size() - data)
        corrupt("the tensor '", entry.name, "' ends behind the end of the file");
      entry.begin += data;
      entry.end += data;
    }
  }

  std::string_view file_;
  const std::string& source_;
  uint64_t place_ = 0;
  GgufHeader header_;
};

}  // namespace

const GgufBlock& block_of(GgufType type) { return *find_block(static_cast<uint32_t>(type)); }

GgufHeader parse_gguf_header(std::string_view file, const std::string& source) {
  return GgufParser(file, source).parse();
}

}  // namespace accel::checkpoint
