// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/safetensors_header.hpp"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "json/json.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;
constexpr size_t kMostDimensions = 64;
constexpr const char* kMetadataKey = "__metadata__";

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};

// In the order in which safetensors sorts tensors.
constexpr DtypeName kDtypes[] = {
    {"U64", at::kUInt64},
    {"I64", at::kLong},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
    {"F32", at::kFloat},
    {"U32", at::kUInt32},
    {"I32", at::kInt},
    {"BF16", at::kBFloat16},
    {"F16", at::kHalf},
    {"U16", at::kUInt16},
    {"I16", at::kShort},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"F4", at::kFloat4_e2m1fn_x2},
    {"BOOL", at::kBool},
};

// Numbers of 6 bits, for which LibTorch has no type.
constexpr const char* kDtypesOf6Bits[] = {"F6_E3M2", "F6_E2M3"};

// Numbers of a shape in a file for each element of the last dimension: LibTorch's elements of F4 are pairs.
int64_t numbers_in_element(at::ScalarType dtype) { return dtype == at::kFloat4_e2m1fn_x2 ? 2 : 1; }

const DtypeName* find_dtype(at::ScalarType dtype) {
  const auto* found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeName& entry) { return entry.dtype == dtype; });
  return found == std::end(kDtypes) ? nullptr : found;
}

const DtypeName* find_dtype(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& entry) { return name == entry.name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

// Bytes of a dense tensor, unless they overflow.
std::optional<uint64_t> dense_bytes(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

// Unknown fields are ignored, as in safetensors. Names that come twice are refused, as the format asks for: readers
// differ in which one they use.
class HeaderParser {
 public:
  HeaderParser(std::string_view file, const std::string& source) : file_(file), source_(source) {}

  SafetensorsHeader parse() {
    const Json json = parse_document(header_text());
    if (json.members() == nullptr) corrupt("its header is not a JSON object");
    std::unordered_set<std::string_view> names;
    bool has_metadata = false;
    for (const auto& [name, value] : *json.members()) {
      if (name == kMetadataKey) {
        if (std::exchange(has_metadata, true)) corrupt("its header has '", kMetadataKey, "' twice");
        if (!value.is_null()) header_.metadata = metadata(value);
        continue;
      }
      if (!names.insert(name).second) corrupt("it has the tensor '", name, "' twice");
      header_.tensors.push_back(tensor(name, value));
    }
    check_layout();
    return std::move(header_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is not a valid safetensors file: ", parts...);
  }

  std::string_view header_text() {
    if (file_.size() < kLengthBytes)
      corrupt("it has ", file_.size(), " bytes; expected at least ", kLengthBytes, " for the length of its header");
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file_[i]);
    if (length > kLargestHeader) corrupt("its header has ", length, " bytes; expected at most ", kLargestHeader);
    if (length > file_.size() - kLengthBytes)
      corrupt("its header has ", length, " bytes, but only ", file_.size() - kLengthBytes, " follow its length");
    header_.data_begin = kLengthBytes + length;
    return file_.substr(kLengthBytes, length);
  }

  Json parse_document(std::string_view text) const {
    try {
      return parse_json(text, "the header");
    } catch (const Error& error) {
      corrupt(error.message());
    }
  }

  Metadata metadata(const Json& object) const {
    if (object.members() == nullptr) corrupt("its ", kMetadataKey, " is not a JSON object");
    Metadata result;
    std::unordered_set<std::string_view> keys;
    for (const auto& [key, value] : *object.members()) {
      if (value.text() == nullptr) corrupt("its metadata '", key, "' is not a string");
      if (!keys.insert(key).second) corrupt("its metadata has '", key, "' twice");
      result.emplace_back(key, *value.text());
    }
    return result;
  }

  int64_t natural(const Json& node, const std::string& tensor_name, const char* what) const {
    const auto integer = node.integer();
    if (!integer || node.digits()->front() == '-')
      corrupt("a number in the ", what, " of tensor '", tensor_name, "' is not an integer of at least 0");
    return *integer;
  }

  // Its known fields, each once.
  const Json& field(const Json::Members& members, const std::string& tensor_name, std::string_view key) const {
    const Json* found = nullptr;
    for (const auto& [name, value] : members) {
      if (name != key) continue;
      if (found != nullptr) corrupt("tensor '", tensor_name, "' has '", key, "' twice");
      found = &value;
    }
    if (found == nullptr) corrupt("tensor '", tensor_name, "' has no ", key);
    return *found;
  }

  TensorEntry tensor(const std::string& name, const Json& object) const {
    if (object.members() == nullptr) corrupt("tensor '", name, "' is not a JSON object");
    const Json::Members& members = *object.members();
    const std::string* const dtype = field(members, name, "dtype").text();
    const Json::Items* const shape = field(members, name, "shape").items();
    const Json::Items* const offsets = field(members, name, "data_offsets").items();
    if (dtype == nullptr) corrupt("the dtype of tensor '", name, "' is not a string");
    if (shape == nullptr) corrupt("the shape of tensor '", name, "' is not a list");
    if (offsets == nullptr || offsets->size() != 2) corrupt("the data_offsets of tensor '", name, "' are not a pair");

    for (const char* const name6 : kDtypesOf6Bits)
      require(*dtype != name6, Status::kUnsupported, "'", source_, "' has the tensor '", name, "' of ", *dtype,
              ", numbers of 6 bits, which LibTorch cannot hold");
    const DtypeName* const known = find_dtype(*dtype);
    if (known == nullptr) corrupt("tensor '", name, "' has the dtype '", *dtype, "', which is not known");
    if (shape->size() > kMostDimensions) corrupt("tensor '", name, "' has more than ", kMostDimensions, " dimensions");
    TensorEntry entry{name, known->dtype, {}, 0, 0};
    for (const Json& size : *shape) entry.shape.push_back(natural(size, name, "shape"));
    if (const int64_t numbers = numbers_in_element(entry.dtype); numbers > 1) {
      if (entry.shape.empty() || entry.shape.back() % numbers != 0)
        corrupt("the last dimension of tensor '", name, "' is not a multiple of ", numbers, ", as ", *dtype, " needs");
      entry.shape.back() /= numbers;
    }
    entry.begin = static_cast<uint64_t>(natural((*offsets)[0], name, "data_offsets"));
    entry.end = static_cast<uint64_t>(natural((*offsets)[1], name, "data_offsets"));
    if (entry.end < entry.begin)
      corrupt("tensor '", name, "' ends at byte ", entry.end, ", before its beginning at ", entry.begin);
    const std::optional<uint64_t> bytes = dense_bytes(entry.shape, entry.dtype);
    if (!bytes) corrupt("the shape of tensor '", name, "' is too large");
    if (*bytes != entry.end - entry.begin)
      corrupt("tensor '", name, "' has ", entry.end - entry.begin, " bytes; expected ", *bytes,
              " for its shape and dtype");
    return entry;
  }

  // One tensor begins where another ends, from the first byte after the header to the last of the file.
  void check_layout() const {
    std::vector<const TensorEntry*> order;
    order.reserve(header_.tensors.size());
    for (const TensorEntry& entry : header_.tensors) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    uint64_t end = 0;
    for (const TensorEntry* entry : order) {
      if (entry->begin != end)
        corrupt("tensor '", entry->name, "' begins at byte ", entry->begin, " of the data; expected ", end);
      end = entry->end;
    }
    const uint64_t available = file_.size() - header_.data_begin;
    if (end != available) corrupt("its tensors have ", end, " bytes, but ", available, " follow its header");
  }

  std::string_view file_;
  const std::string& source_;
  SafetensorsHeader header_{{}, {}, 0};
};

void check_text(const std::string& text, const char* what) {
  require(first_bad_byte(text) == text.size(), Status::kInvalidArgument, "the ", what, " '", text,
          "' is not UTF-8, or has a NUL; safetensors files cannot hold it");
}

// The shape as the file has it.
std::vector<int64_t> shape_of_numbers(const TensorEntry& entry) {
  std::vector<int64_t> shape = entry.shape;
  const int64_t numbers = numbers_in_element(entry.dtype);
  require(numbers == 1 || !shape.empty(), Status::kTypeMismatch, "tensor '", entry.name, "' of ",
          c10::toString(entry.dtype), " has no dimensions; safetensors files hold pairs in the last one");
  if (numbers > 1)
    require(!__builtin_mul_overflow(shape.back(), numbers, &shape.back()), Status::kInvalidArgument,
            "the shape of tensor '", entry.name, "' is too large");
  return shape;
}

Json numbers(const std::vector<int64_t>& values) {
  Json::Items items;
  for (const int64_t value : values) items.push_back(Json::number(value));
  return Json(std::move(items));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& source) {
  return HeaderParser(file, source).parse();
}

std::string print_safetensors_header(const Metadata& metadata, std::vector<TensorEntry>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : tensors) {
    check_text(entry.name, "tensor name");
    require(names.insert(entry.name).second, Status::kInvalidArgument, "two tensors are named '", entry.name, "'");
    require(entry.name != kMetadataKey, Status::kInvalidArgument, "a tensor is named '", entry.name,
            "', which safetensors files use for their metadata");
    require(find_dtype(entry.dtype) != nullptr, Status::kTypeMismatch, "tensor '", entry.name, "' has the dtype ",
            c10::toString(entry.dtype), ", which safetensors files cannot hold; convert it");
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(find_dtype(a.dtype), std::string_view(a.name)) <
           std::pair(find_dtype(b.dtype), std::string_view(b.name));
  });
  Json::Members header;
  if (!metadata.empty()) {
    Json::Members members;
    std::unordered_set<std::string_view> keys;
    for (const auto& [key, value] : metadata) {
      check_text(key, "metadata key");
      check_text(value, "metadata value");
      require(keys.insert(key).second, Status::kInvalidArgument, "the metadata has '", key, "' twice");
      members.emplace_back(key, Json(value));
    }
    header.emplace_back(kMetadataKey, Json(std::move(members)));
  }
  uint64_t offset = 0;
  for (TensorEntry& entry : tensors) {
    const std::optional<uint64_t> bytes = dense_bytes(entry.shape, entry.dtype);
    require(bytes.has_value(), Status::kInvalidArgument, "the shape of tensor '", entry.name, "' is too large");
    entry.begin = offset;
    entry.end = offset += *bytes;
    Json::Members members;
    members.emplace_back("dtype", find_dtype(entry.dtype)->name);
    members.emplace_back("shape", numbers(shape_of_numbers(entry)));
    members.emplace_back("data_offsets", numbers({static_cast<int64_t>(entry.begin), static_cast<int64_t>(entry.end)}));
    header.emplace_back(entry.name, std::move(members));
  }
  std::string text = print_json(Json(std::move(header)));
  // Copies between the pages of tensors and a file are several times slower where the two differ by less than a cache
  // line.
  constexpr size_t kCacheLine = 64;
  text.append((kCacheLine - (kLengthBytes + text.size()) % kCacheLine) % kCacheLine, ' ');
  require(text.size() <= kLargestHeader, Status::kInvalidArgument, "the header of ", tensors.size(), " tensors has ",
          text.size(), " bytes; safetensors files hold at most ", kLargestHeader);
  std::string result(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; i++) result[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return result + text;
}

}  // namespace accel::checkpoint
