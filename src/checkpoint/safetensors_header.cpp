#include "checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text_check.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;
constexpr size_t kMostDimensions = 64;
constexpr uint64_t kAlignment = 8;
constexpr const char* kMetadataKey = "__metadata__";

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};

// In the order in which the reference sorts tensors.
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
    {"BOOL", at::kBool},
};

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

// Bytes of a dense tensor, unless they or its strides overflow.
std::optional<uint64_t> dense_bytes(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  int64_t span = bytes;
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes) || __builtin_mul_overflow(span, std::max<int64_t>(size, 1), &span))
      return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

class HeaderParser {
 public:
  HeaderParser(std::string_view file, const std::string& source) : file_(file), source_(source) {}

  SafetensorsHeader parse() {
    const std::string_view text = header_text();
    const size_t bad = first_bad_byte(text, TextKind::kJson);
    if (bad != text.size()) corrupt("its header has an invalid or forbidden character at byte ", kLengthBytes + bad);
    const Json json = parse_document(text);
    if (!cJSON_IsObject(json.get())) corrupt("its header is no JSON object");
    std::unordered_set<std::string_view> names;
    const cJSON* node = nullptr;
    cJSON_ArrayForEach(node, json.get()) {
      if (!names.insert(node->string).second) corrupt("its header has '", node->string, "' twice");
      if (std::strcmp(node->string, kMetadataKey) == 0)
        header_.metadata = metadata(node);
      else
        header_.tensors.push_back(tensor(node));
    }
    check_layout();
    return std::move(header_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is no valid safetensors file: ", parts...);
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
    const std::string_view text = file_.substr(kLengthBytes, length);
    if (text.empty() || text.front() != '{') corrupt("its header does not begin with '{' at byte ", kLengthBytes);
    return text;
  }

  Json parse_document(std::string_view text) const {
    try {
      return parse_json(text, "the header");
    } catch (const Error& error) {
      corrupt(error.message());
    }
  }

  Metadata metadata(const cJSON* object) const {
    if (!cJSON_IsObject(object)) corrupt("its ", kMetadataKey, " is no JSON object");
    Metadata result;
    std::unordered_set<std::string_view> keys;
    const cJSON* node = nullptr;
    cJSON_ArrayForEach(node, object) {
      if (!cJSON_IsString(node)) corrupt("its metadata '", node->string, "' is no string");
      if (!keys.insert(node->string).second) corrupt("its metadata has '", node->string, "' twice");
      result.emplace_back(node->string, node->valuestring);
    }
    return result;
  }

  int64_t natural(const cJSON* node, const char* tensor_name, const char* what) const {
    if (!cJSON_IsNumber(node) || node->valuedouble < 0 || node->valuedouble > kLargestExactInteger ||
        std::floor(node->valuedouble) != node->valuedouble)
      corrupt("a number in the ", what, " of tensor '", tensor_name, "' is no integer of at least 0");
    return static_cast<int64_t>(node->valuedouble);
  }

  TensorEntry tensor(const cJSON* object) const {
    const char* const name = object->string;
    if (!cJSON_IsObject(object)) corrupt("tensor '", name, "' is no JSON object");
    const cJSON *dtype = nullptr, *shape = nullptr, *offsets = nullptr;
    const cJSON* node = nullptr;
    cJSON_ArrayForEach(node, object) {
      const std::string_view key = node->string;
      const cJSON** const place = key == "dtype"          ? &dtype
                                  : key == "shape"        ? &shape
                                  : key == "data_offsets" ? &offsets
                                                          : nullptr;
      if (place == nullptr) corrupt("tensor '", name, "' has '", key, "'; expected dtype, shape and data_offsets");
      if (*place != nullptr) corrupt("tensor '", name, "' has '", key, "' twice");
      *place = node;
    }
    if (!cJSON_IsString(dtype)) corrupt("tensor '", name, "' has no dtype");
    if (!cJSON_IsArray(shape)) corrupt("tensor '", name, "' has no shape");
    if (!cJSON_IsArray(offsets)) corrupt("tensor '", name, "' has no data_offsets");

    TensorEntry entry{name, at::kByte, {}, 0, 0};
    const DtypeName* const known = find_dtype(dtype->valuestring);
    if (known == nullptr) corrupt("tensor '", name, "' has the dtype '", dtype->valuestring, "', which is not known");
    entry.dtype = known->dtype;
    cJSON_ArrayForEach(node, shape) {
      if (entry.shape.size() == kMostDimensions)
        corrupt("tensor '", name, "' has more than ", kMostDimensions, " dimensions");
      entry.shape.push_back(natural(node, name, "shape"));
    }
    const cJSON* const begin = offsets->child;
    if (begin == nullptr || begin->next == nullptr || begin->next->next != nullptr)
      corrupt("the data_offsets of tensor '", name, "' are no pair");
    entry.begin = static_cast<uint64_t>(natural(begin, name, "data_offsets"));
    entry.end = static_cast<uint64_t>(natural(begin->next, name, "data_offsets"));
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
  require(first_bad_byte(text, TextKind::kPlain) == text.size(), Status::kInvalidArgument, "the ", what, " '", text,
          "' is not UTF-8, or has a NUL; safetensors files cannot hold it");
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
  const Json json(cJSON_CreateObject());
  if (!metadata.empty()) {
    cJSON* const object = cJSON_AddObjectToObject(json.get(), kMetadataKey);
    std::unordered_set<std::string_view> keys;
    for (const auto& [key, value] : metadata) {
      check_text(key, "metadata key");
      check_text(value, "metadata value");
      require(keys.insert(key).second, Status::kInvalidArgument, "the metadata has '", key, "' twice");
      cJSON_AddStringToObject(object, key.c_str(), value.c_str());
    }
  }
  uint64_t offset = 0;
  for (TensorEntry& entry : tensors) {
    const std::optional<uint64_t> bytes = dense_bytes(entry.shape, entry.dtype);
    require(bytes.has_value(), Status::kInvalidArgument, "the shape of tensor '", entry.name, "' is too large");
    entry.begin = offset;
    entry.end = offset += *bytes;
    cJSON* const object = cJSON_AddObjectToObject(json.get(), entry.name.c_str());
    cJSON_AddStringToObject(object, "dtype", find_dtype(entry.dtype)->name);
    cJSON* const shape = cJSON_AddArrayToObject(object, "shape");
    for (const int64_t size : entry.shape) cJSON_AddItemToArray(shape, cJSON_CreateNumber(static_cast<double>(size)));
    cJSON* const offsets = cJSON_AddArrayToObject(object, "data_offsets");
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber(static_cast<double>(entry.begin)));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber(static_cast<double>(entry.end)));
  }
  std::string text = print_json(json.get());
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  require(text.size() <= kLargestHeader, Status::kInvalidArgument, "the header of ", tensors.size(), " tensors has ",
          text.size(), " bytes; safetensors files hold at most ", kLargestHeader);
  std::string result(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; i++) result[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return result + text;
}

}  // namespace accel::checkpoint
