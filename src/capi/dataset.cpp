// Section 9: datasets.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel.h"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/value.hpp"
#include "data/datasets/subset_dataset.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/datasets/text_dataset.hpp"

using namespace accel;
using namespace accel::capi;

accel_status_t accel_dataset_tensors(accel_tensor_t* const* tensors, size_t n_tensors, accel_dataset_t** out) {
  return guarded(__func__, [&] {
    check_pointer(tensors, "tensors");
    std::vector<at::Tensor> columns;
    for (size_t i = 0; i < n_tensors; ++i) columns.push_back(check(tensors[i], "tensors[i]").tensor);
    check_pointer(out, "out");
    *out = std::make_unique<accel_dataset>(std::make_shared<data::TensorDataset>(std::move(columns))).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_dataset_text(const char* path, const char* suffix, int64_t sequence_length,
                                  accel_dataset_t** out) {
  return guarded(__func__, [&] {
    check_pointer(path, "path");
    check_pointer(out, "out");
    const auto end = suffix != nullptr ? std::optional<std::string>(suffix) : std::nullopt;
    *out = std::make_unique<accel_dataset>(std::make_shared<data::TextDataset>(path, end, sequence_length)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_dataset_subset(accel_dataset_t* dataset, int64_t begin, int64_t end, accel_dataset_t** out) {
  return guarded(__func__, [&] {
    const auto& whole = check(dataset, "dataset").dataset;
    check_pointer(out, "out");
    *out = std::make_unique<accel_dataset>(std::make_shared<data::SubsetDataset>(whole, begin, end)).release();
    return ACCEL_OK;
  });
}

accel_dataset_t* accel_dataset_retain(accel_dataset_t* dataset) { return retain_handle(__func__, dataset, "dataset"); }

void accel_dataset_release(accel_dataset_t* dataset) { release_handle(dataset); }

int64_t accel_dataset_length(const accel_dataset_t* dataset) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(dataset, "dataset").dataset->length(); });
}

accel_status_t accel_dataset_item(const accel_dataset_t* dataset, int64_t index, accel_value_t* out) {
  return guarded(__func__, [&] {
    const data::Dataset& engine = *check(dataset, "dataset").dataset;
    give(check_pointer(out, "out"), engine.item(index));
    return ACCEL_OK;
  });
}
