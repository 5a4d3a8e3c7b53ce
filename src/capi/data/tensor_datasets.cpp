// SPDX-License-Identifier: Apache-2.0
// Section 9: datasets of tensors.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/dataset.hpp"
#include "capi/values/tensor_list.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "data/datasets/columns/arrow_dataset.hpp"
#include "data/datasets/sequences/documents.hpp"
#include "data/datasets/sequences/numbers_file.hpp"
#include "data/datasets/sequences/packed_dataset.hpp"
#include "data/datasets/sequences/window_dataset.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "tensor/dtype.hpp"

namespace accel::capi {
namespace {

data::DocumentOffsets read_documents(const accel_packing_options_t& options, const data::TokenSource& tokens) {
  const auto end = optional_number(options.end_of_document);
  require(end.has_value() != (options.document_offsets != nullptr), Status::kInvalidArgument,
          "end_of_document and document_offsets are ", end ? "both" : "not",
          " given; expected one of them, which says where documents end");
  if (end) return data::documents_ended_by(tokens, *end);
  return data::documents_of_offsets(tokens, check(options.document_offsets, "options.document_offsets").tensor);
}

// Arrow's structs are consumed even if the call fails.
template <typename Struct>
data::ArrowOwner<Struct> take(Struct* given) {
  return given != nullptr ? data::ArrowOwner<Struct>(*given) : data::ArrowOwner<Struct>();
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_dataset_tensors(accel_tensor_t* const* tensors, size_t n_tensors,
                                                    accel_dataset_t** out) {
  return guarded(__func__, out,
                 [&] { return std::make_shared<data::TensorDataset>(read_tensors(tensors, n_tensors, "tensors")); });
}

ACCEL_FUNCTION accel_status_t accel_dataset_named_tensors(const accel_value_t* tensors, accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(tensors, "tensors");
    const c10::IValue map = to_ivalue(*tensors, "tensors");
    require(map.isGenericDict(), Status::kTypeMismatch, "tensors is not a map; expected a map from names to tensors");
    std::vector<at::Tensor> columns;
    std::vector<std::string> names;
    for (const auto& entry : map.toGenericDict()) {
      require(entry.value().isTensor(), Status::kTypeMismatch, "tensors['", entry.key().toStringRef(),
              "'] is not a tensor; expected one");
      columns.push_back(entry.value().toTensor());
      names.push_back(entry.key().toStringRef());
    }
    return std::make_shared<data::TensorDataset>(columns, names);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_safetensors(const char* path, accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    std::vector<at::Tensor> columns;
    std::vector<std::string> names;
    for (auto& [name, tensor] : checkpoint::load_safetensors(path).tensors) {
      columns.push_back(tensor);
      names.push_back(name);
    }
    return std::make_shared<data::TensorDataset>(columns, names);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_ragged(accel_tensor_t* const* values, size_t n_values,
                                                   accel_tensor_t* offsets, accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    const auto columns = read_tensors(values, n_values, "values");
    const at::Tensor& ends = check(offsets, "offsets").tensor;
    return std::make_shared<data::RaggedDataset>(columns, ends);
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_map_file(const char* path, accel_dtype_t dtype, accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    std::optional<at::ScalarType> type;
    if (dtype != ACCEL_UNSET) type = tensor::dtype_from_number(dtype);
    return data::map_numbers(path, type);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_windows(accel_tensor_t* tokens, int64_t sequence_length, int64_t stride,
                                                    accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    const at::Tensor& numbers = check(tokens, "tokens").tensor;
    return std::make_shared<data::WindowDataset>(data::tensor_tokens(numbers), sequence_length,
                                                 optional_number(stride).value_or(sequence_length));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_packed(accel_tensor_t* tokens, const accel_packing_options_t* options,
                                                   accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    const at::Tensor& numbers = check(tokens, "tokens").tensor;
    check_pointer(options, "options");
    const auto given = read_options(options, "options");
    const std::shared_ptr<const data::TokenSource> source = data::tensor_tokens(numbers);
    auto packing = data::PackedDataset::Packing::kConcatenate;
    set_given(packing, given.packing);
    return std::make_shared<data::PackedDataset>(source, read_documents(given, *source), given.sequence_length, packing,
                                                 optional_number(given.pad_token).value_or(0));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_arrow(ArrowSchema* schema, ArrowArray* array, double null_value,
                                                  accel_dataset_t** out) {
  return guarded(__func__, [&] {
    data::ArrowOwner<ArrowSchema> taken_schema = take(schema);
    data::ArrowOwner<ArrowArray> taken_array = take(array);
    check_pointer(schema, "schema");
    check_pointer(array, "array");
    check_pointer(out, "out");
    write_output(out, data::arrow_dataset(taken_schema.get(), taken_array.get(), optional_number(null_value)));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_arrow_stream(ArrowArrayStream* stream, double null_value,
                                                         accel_dataset_t** out) {
  return guarded(__func__, [&] {
    data::ArrowOwner<ArrowArrayStream> taken = take(stream);
    check_pointer(stream, "stream");
    check_pointer(out, "out");
    write_output(out, data::arrow_dataset(taken.get(), optional_number(null_value)));
  });
}

}  // namespace accel::capi
