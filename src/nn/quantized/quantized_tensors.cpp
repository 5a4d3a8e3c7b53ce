// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantized_tensors.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "nn/quantized/scale_codes.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

constexpr const char* kAbsmax = "weight_absmax";
constexpr const char* kQuantMap = "weight_quant_map";
constexpr const char* kNestedAbsmax = "weight_nested_absmax";
constexpr const char* kNestedQuantMap = "weight_nested_quant_map";
constexpr const char* kState = "weight_quant_state";
constexpr const char* kGroupScales = "weight_scales";
constexpr const char* kGroupOffsets = "weight_offsets";
constexpr const char* kColumns = "weight_columns";
constexpr const char* kRowMagnitudes = "SCB";
constexpr const char* kRowFormat = "weight_format";
constexpr float kLargestInt8 = 127;

constexpr std::string_view kMemberPrefix = "weight_", kFilePrefix = "weight.";
constexpr const char* kBitsandbytesState = "weight.quant_state.bitsandbytes__";
constexpr const char* kOwnState = "weight.quant_state.accel__";

bool is_of_bitsandbytes(const std::string& kind) { return kind == "nf4" || kind == "fp4"; }

at::Tensor bytes_of(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

Json parse_state(const at::Tensor& bytes, const std::string& name) {
  require(bytes.scalar_type() == at::kByte && bytes.dim() == 1, Status::kInvalidArgument, "'", name, "' is ",
          tensor::dtype_name(bytes.scalar_type()), " ", bytes.sizes(), "; expected JSON as a row of bytes");
  const at::Tensor own = bytes.cpu().contiguous();
  const std::string text(static_cast<const char*>(own.const_data_ptr()), static_cast<size_t>(own.numel()));
  Json state = parse_json(text, name);
  require(state.members() != nullptr, Status::kInvalidArgument, "'", name, "' is ", text, "; expected an object");
  return state;
}

Json state_of(const QuantizedState& state, double mean) {
  const QuantizedKind& kind = state.kind;
  Json::Members members;
  members.emplace_back("quant_type", Json(kind.name));
  members.emplace_back("blocksize", Json::number(kind.format.group));
  if (kind.storage == WeightStorage::kGroups) members.emplace_back("offsets", Json(kind.format.has_offsets));
  if (state.has_order) members.emplace_back("columns", Json(true));
  members.emplace_back("dtype", Json(tensor::dtype_name(state.dtype)));
  members.emplace_back("shape", Json(Json::Items{Json::number(state.sizes[0]), Json::number(state.sizes[1])}));
  if (kind.has_double_quantization) {
    members.emplace_back("nested_blocksize", Json::number(kScaleBlock));
    members.emplace_back("nested_dtype", Json("float32"));
    members.emplace_back("nested_offset", Json::number(mean));
  }
  return Json(std::move(members));
}

at::Tensor buffer_of(const NamedTensors& buffers, const char* name) {
  const auto found =
      std::find_if(buffers.begin(), buffers.end(), [&](const auto& entry) { return entry.first == name; });
  return found == buffers.end() ? at::Tensor() : found->second;
}

at::Tensor entry_of(const TensorsByName& files, const std::string& name) {
  const auto found = files.find(name);
  return found == files.end() ? at::Tensor() : found->second;
}

struct PackedNumbers {
  at::Tensor codes, scales, offsets, order;
};

PackedNumbers pack(const at::Tensor& values, const QuantizedState& state, const std::string& name) {
  const kernels::WeightFormat& format = state.kind.format;
  const int64_t rows = state.is_flat() ? 1 : state.sizes[0];
  const int64_t columns = state.is_flat() ? state.sizes[0] * state.sizes[1] : state.sizes[1];
  const int64_t groups = kernels::groups_of_row(format, columns);
  PackedNumbers packed;
  packed.codes = at::empty({kernels::code_bytes(format, rows, columns)}, at::TensorOptions().dtype(at::kByte));
  packed.scales = at::empty({rows, groups}, at::TensorOptions().dtype(at::kFloat));
  if (format.has_offsets) packed.offsets = at::empty({rows, groups}, at::TensorOptions().dtype(at::kFloat));
  const auto broken =
      kernels::quantize_weight(values.const_data_ptr(), kernel_format(values.scalar_type()), rows, columns, format,
                               packed.codes.mutable_data_ptr<uint8_t>(), packed.scales.mutable_data_ptr<float>(),
                               format.has_offsets ? packed.offsets.mutable_data_ptr<float>() : nullptr);
  if (broken) {
    const int64_t element = *broken / groups * columns + *broken % groups * kernels::group_columns(format, columns);
    fail(Status::kInvalidArgument, "'", name, "' has a NaN or an infinity in row ",
         element / std::max<int64_t>(state.sizes[1], 1), " or behind; expected finite numbers to quantize");
  }
  return packed;
}

void add_blocks(const PackedNumbers& packed, QuantizedTensors& made) {
  const QuantizedKind& kind = made.state.kind;
  made.codes = packed.codes.view({-1, 1});
  const at::Tensor scales = packed.scales.view(-1);
  double mean = 0;
  if (kind.has_double_quantization) {
    const ScaleCodes encoded = encode_scales(scales);
    mean = encoded.mean;
    made.buffers = {{kAbsmax, encoded.codes},
                    {kQuantMap, code_book(kind.format.code)},
                    {kNestedAbsmax, encoded.magnitudes},
                    {kNestedQuantMap, scale_code_book()}};
  } else {
    made.buffers = {{kAbsmax, scales}, {kQuantMap, code_book(kind.format.code)}};
  }
  made.buffers.emplace_back(kState, bytes_of(print_json(state_of(made.state, mean))));
}

void add_rows(const PackedNumbers& packed, const at::Tensor& values, QuantizedTensors& made) {
  made.codes = packed.codes.view(at::kChar).view(made.state.sizes);
  at::Tensor magnitudes = at::zeros({made.state.sizes[0]}, at::TensorOptions().dtype(at::kFloat));
  if (values.numel() > 0) magnitudes = values.abs().amax(at::IntArrayRef({1})).to(at::kFloat);
  made.buffers = {{kRowMagnitudes, magnitudes}, {kRowFormat, at::zeros({}, at::TensorOptions().dtype(at::kByte))}};
}

void add_groups(const PackedNumbers& packed, QuantizedTensors& made) {
  made.codes = packed.codes.view({made.state.sizes[0], -1});
  made.buffers = {{kGroupScales, packed.scales}};
  if (packed.offsets.defined()) made.buffers.emplace_back(kGroupOffsets, packed.offsets);
  if (packed.order.defined()) made.buffers.emplace_back(kColumns, packed.order.to(at::kInt));
  made.buffers.emplace_back(kState, bytes_of(print_json(state_of(made.state, 0))));
}

void check_codes(const QuantizedTensors& found, const std::string& name, const std::vector<int64_t>& sizes,
                 at::ScalarType dtype) {
  require(found.codes.sizes() == sizes && found.codes.scalar_type() == dtype, Status::kShapeMismatch, "'", name,
          "' is ", tensor::dtype_name(found.codes.scalar_type()), " ", found.codes.sizes(), " and was quantized from ",
          at::IntArrayRef(found.state.sizes), " to ", found.state.kind.name, "; expected ", tensor::dtype_name(dtype),
          " ", at::IntArrayRef(sizes));
}

void check_buffer(const at::Tensor& buffer, const std::string& name, int64_t count, at::ScalarType dtype) {
  require(buffer.defined(), Status::kNotFound, "the files lack '", name, "'; expected it beside the quantized weight");
  require(buffer.numel() == count && buffer.scalar_type() == dtype, Status::kShapeMismatch, "'", name, "' is ",
          tensor::dtype_name(buffer.scalar_type()), " ", buffer.sizes(), "; expected ", count, " numbers of ",
          tensor::dtype_name(dtype));
}

// Other numbers would be indices of no column.
void check_order(const at::Tensor& order, const std::string& name, int64_t columns) {
  check_buffer(order, name, columns, at::kInt);
  const at::Tensor sorted = std::get<0>(order.cpu().view(-1).sort());
  require(sorted.equal(at::arange(columns, at::kInt)), Status::kInvalidArgument, "'", name,
          "' does not have each number below ", columns, " once; expected an order of the columns");
}

std::vector<int64_t> shape_in(const Json& state, const std::string& name) {
  std::vector<int64_t> sizes;
  const Json* const shape = json_member(state, "shape");
  if (shape != nullptr && shape->items() != nullptr)
    for (const Json& size : *shape->items()) sizes.push_back(size.integer().value_or(-1));
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool fits = sizes.size() == 2 && sizes[0] >= 0 && sizes[1] >= 0 && sizes[0] < kMost && sizes[1] < kMost;
  require(fits, Status::kInvalidArgument, "'", name, "' has the shape ", shape == nullptr ? "" : print_json(*shape),
          "; expected two sizes");
  return sizes;
}

QuantizedState read_state(const Json& json, const std::string& name, const std::string& kind,
                          const QuantizedKind& otherwise) {
  const std::string said = json_text(json, "quant_type", kind);
  require(said == kind, Status::kInvalidArgument, "'", name, "' has the quant_type '", said, "'; expected '", kind,
          "'");
  QuantizationOptions options;
  options.kind = kind;
  options.group = json_integer(json, "blocksize", 64);
  options.has_offsets = json_flag(json, "offsets", false);
  options.has_double_quantization = json_member(json, "nested_blocksize") != nullptr;
  options.compute_dtype = otherwise.compute_dtype;
  const int64_t nested = json_integer(json, "nested_blocksize", kScaleBlock);
  require(nested == kScaleBlock, Status::kUnsupported, "'", name, "' has the nested_blocksize ", nested, "; expected ",
          kScaleBlock);
  return {make_quantized_kind(options), shape_in(json, name),
          tensor::dtype_from_name(json_text(json, "dtype", "float32")), json_flag(json, "columns", false)};
}

// Other values for the codes are another format.
void check_book(const at::Tensor& book, const at::Tensor& expected, const std::string& name) {
  require(at::allclose(book.cpu().view(-1), expected, 1e-5, 1e-7), Status::kUnsupported, "'", name,
          "' has other values for its codes than bitsandbytes; expected its own");
}

// Takes the buffers that files have.
void take(QuantizedTensors& found, const TensorsByName& files, const std::string& layer,
          const std::vector<const char*>& members) {
  for (const char* const member : members) found.buffers.emplace_back(member, at::Tensor());
  for (const auto& [member, name] : names_in_files(found.state.kind.name, found.buffers))
    for (auto& [buffer, tensor] : found.buffers)
      if (buffer == member) tensor = entry_of(files, layer + name);
}

QuantizedTensors find_blocks(const TensorsByName& files, const std::string& layer, const std::string& kind,
                             const at::Tensor& bytes, const QuantizedKind& otherwise) {
  const std::string name = layer + kBitsandbytesState + kind;
  QuantizedTensors found;
  found.codes = entry_of(files, layer + "weight");
  found.state = read_state(parse_state(bytes, name), name, kind, otherwise);
  const int64_t count = found.state.sizes[0] * found.state.sizes[1], group = found.state.kind.format.group;
  const int64_t blocks = (count + group - 1) / group;
  check_codes(found, layer + "weight", {(count + 1) / 2, 1}, at::kByte);
  const bool is_double = found.state.kind.has_double_quantization;
  if (is_double)
    take(found, files, layer, {kAbsmax, kQuantMap, kNestedAbsmax, kNestedQuantMap, kState});
  else
    take(found, files, layer, {kAbsmax, kQuantMap, kState});
  check_buffer(buffer_of(found.buffers, kAbsmax), layer + "weight.absmax", blocks, is_double ? at::kByte : at::kFloat);
  check_buffer(buffer_of(found.buffers, kQuantMap), layer + "weight.quant_map", 16, at::kFloat);
  check_book(buffer_of(found.buffers, kQuantMap), code_book(found.state.kind.format.code), layer + "weight.quant_map");
  if (!is_double) return found;
  check_buffer(buffer_of(found.buffers, kNestedAbsmax), layer + "weight.nested_absmax",
               (blocks + kScaleBlock - 1) / kScaleBlock, at::kFloat);
  check_buffer(buffer_of(found.buffers, kNestedQuantMap), layer + "weight.nested_quant_map", 256, at::kFloat);
  return found;
}

QuantizedTensors find_groups(const TensorsByName& files, const std::string& layer, const std::string& kind,
                             const at::Tensor& bytes, const QuantizedKind& otherwise) {
  const std::string name = layer + kOwnState + kind;
  QuantizedTensors found;
  found.codes = entry_of(files, layer + "weight");
  found.state = read_state(parse_state(bytes, name), name, kind, otherwise);
  const kernels::WeightFormat& format = found.state.kind.format;
  const int64_t rows = found.state.sizes[0], columns = found.state.sizes[1];
  check_codes(found, layer + "weight", {rows, kernels::row_bytes(format, columns)}, at::kByte);
  std::vector<const char*> members = {kGroupScales};
  if (format.has_offsets) members.push_back(kGroupOffsets);
  if (found.state.has_order) members.push_back(kColumns);
  members.push_back(kState);
  take(found, files, layer, members);
  const int64_t groups = rows * kernels::groups_of_row(format, columns);
  check_buffer(buffer_of(found.buffers, kGroupScales), layer + "weight.scales", groups, at::kFloat);
  if (format.has_offsets)
    check_buffer(buffer_of(found.buffers, kGroupOffsets), layer + "weight.offsets", groups, at::kFloat);
  if (found.state.has_order) check_order(buffer_of(found.buffers, kColumns), layer + "weight.columns", columns);
  return found;
}

QuantizedTensors find_rows(const TensorsByName& files, const std::string& layer, const at::Tensor& magnitudes,
                           const QuantizedKind& otherwise) {
  QuantizedTensors found;
  found.codes = entry_of(files, layer + "weight");
  found.state.kind = otherwise;
  if (otherwise.storage != WeightStorage::kRows) {
    QuantizationOptions options;
    options.kind = "llm_int8";
    found.state.kind = make_quantized_kind(options);
  }
  require(found.codes.dim() == 2, Status::kShapeMismatch, "'", layer, "weight' is ", found.codes.sizes(),
          "; expected a matrix of int8");
  found.state.sizes = found.codes.sizes().vec();
  check_codes(found, layer + "weight", found.state.sizes, at::kChar);
  check_buffer(magnitudes, layer + "SCB", found.state.sizes[0], at::kFloat);
  found.buffers = {{kRowMagnitudes, magnitudes}};
  const at::Tensor format = entry_of(files, layer + "weight_format");
  if (!format.defined()) return found;
  require(format.numel() == 1 && format.item().toLong() == 0, Status::kUnsupported, "'", layer,
          "weight_format' is not 0; expected codes by rows");
  found.buffers.emplace_back(kRowFormat, format);
  return found;
}

// `order`, if it is defined, is that of the columns as they are stored.
QuantizedTensors quantize(const at::Tensor& values, QuantizedState state, const at::Tensor& order,
                          const std::string& name) {
  QuantizedTensors made;
  made.state = std::move(state);
  const WeightStorage storage = made.state.kind.storage;
  const at::ScalarType read = is_kernel_dtype(values.scalar_type()) ? values.scalar_type() : at::kFloat;
  at::Tensor numbers = values.detach().to(at::kCPU, read).contiguous();
  if (order.defined()) numbers = numbers.index_select(1, order.to(at::kCPU, at::kLong));
  PackedNumbers packed = pack(numbers, made.state, name);
  packed.order = order;
  if (storage == WeightStorage::kBlocks)
    add_blocks(packed, made);
  else if (storage == WeightStorage::kRows)
    add_rows(packed, numbers, made);
  else
    add_groups(packed, made);
  made.codes = made.codes.to(values.device());
  for (auto& [buffer, tensor] : made.buffers) tensor = tensor.to(values.device());
  return made;
}

}  // namespace

bool QuantizedState::is_flat() const {
  return kind.storage == WeightStorage::kBlocks && sizes[1] % kind.format.group != 0;
}

QuantizedTensors quantize_matrix(const at::Tensor& values, const QuantizedKind& kind, const std::string& name) {
  require(values.dim() == 2 && values.is_floating_point(), Status::kInvalidArgument, "'", name, "' is ",
          tensor::dtype_name(values.scalar_type()), " ", values.sizes(), "; expected a floating matrix to quantize");
  return quantize(values, {kind, values.sizes().vec(), values.scalar_type()}, {}, name);
}

QuantizedTensors quantize_again(const at::Tensor& values, const QuantizedState& state, const NamedTensors& buffers,
                                const std::string& name) {
  return quantize(values.to(state.dtype), state, state.has_order ? buffer_of(buffers, kColumns) : at::Tensor(), name);
}

QuantizedTensors grouped_tensors(const CodedMatrix& matrix, at::ScalarType dtype) {
  QuantizationOptions options;
  options.kind = matrix.format.code == kernels::WeightCode::kInt4 ? "int4" : "int8_grouped";
  options.group = matrix.format.group;
  options.has_offsets = matrix.format.has_offsets;
  QuantizedTensors made;
  made.state = {make_quantized_kind(options), matrix.sizes, dtype, matrix.order.defined()};
  add_groups({matrix.codes, matrix.scales, matrix.offsets, matrix.order}, made);
  return made;
}

CodedMatrix decode_state(const QuantizedState& state, const at::Tensor& codes, const NamedTensors& buffers) {
  CodedMatrix matrix{state.kind.format, state.sizes, state.is_flat(), codes, {}, {}, {}};
  if (state.kind.storage == WeightStorage::kRows) {
    matrix.scales = buffer_of(buffers, kRowMagnitudes).to(at::kFloat).div(kLargestInt8);
  } else if (state.kind.storage == WeightStorage::kGroups) {
    matrix.scales = buffer_of(buffers, kGroupScales).contiguous();
    if (state.kind.format.has_offsets) matrix.offsets = buffer_of(buffers, kGroupOffsets).contiguous();
    if (state.has_order) matrix.order = buffer_of(buffers, kColumns);
  } else if (!state.kind.has_double_quantization) {
    matrix.scales = buffer_of(buffers, kAbsmax).contiguous();
  } else {
    const double mean = json_number(parse_state(buffer_of(buffers, kState), kState), "nested_offset", 0);
    matrix.scales = decode_scales({buffer_of(buffers, kAbsmax), buffer_of(buffers, kNestedAbsmax), mean},
                                  buffer_of(buffers, kNestedQuantMap));
  }
  return matrix;
}

std::vector<std::pair<std::string, std::string>> names_in_files(const std::string& kind, const NamedTensors& buffers) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [name, tensor] : buffers) {
    if (name == kState)
      names.emplace_back(name, (is_of_bitsandbytes(kind) ? kBitsandbytesState : kOwnState) + kind);
    else if (name != kRowFormat && starts_with(name, kMemberPrefix))
      names.emplace_back(name, std::string(kFilePrefix) + name.substr(kMemberPrefix.size()));
    else
      names.emplace_back(name, name);
  }
  return names;
}

QuantizedTensors find_quantized(const TensorsByName& files, const std::string& name, const QuantizedKind& otherwise) {
  const std::string layer = name.substr(0, name.size() - std::string_view("weight").size());
  if (!entry_of(files, name).defined()) return {};
  if (const at::Tensor magnitudes = entry_of(files, layer + kRowMagnitudes); magnitudes.defined())
    return find_rows(files, layer, magnitudes, otherwise);
  for (const std::string& kind : quantized_kind_names()) {
    const bool is_theirs = is_of_bitsandbytes(kind);
    const at::Tensor state = entry_of(files, layer + (is_theirs ? kBitsandbytesState : kOwnState) + kind);
    if (!state.defined()) continue;
    return is_theirs ? find_blocks(files, layer, kind, state, otherwise)
                     : find_groups(files, layer, kind, state, otherwise);
  }
  return {};
}

}  // namespace accel::nn
