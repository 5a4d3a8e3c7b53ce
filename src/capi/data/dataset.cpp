// SPDX-License-Identifier: Apache-2.0
// Section 9: functions of all datasets, and datasets of other datasets.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/values/value.hpp"
#include "data/datasets/concatenated_dataset.hpp"
#include "data/datasets/subset_dataset.hpp"
#include "data/iterable_datasets/dataset_as_iterable.hpp"
#include "data/iterable_datasets/interleaved_datasets.hpp"
#include "data/iterable_datasets/no_items.hpp"
#include "tensor/tree.hpp"

accel_dataset::accel_dataset(std::shared_ptr<const accel::data::IterableDataset> iterable)
    : dataset(std::make_shared<accel::data::NoItems>()), iterable(std::move(iterable)) {}

namespace accel::capi {

namespace {

const accel_dataset& check_numbered(accel_dataset_t* dataset, const char* name) {
  const accel_dataset& handle = check(dataset, name);
  require(handle.iterable == nullptr, Status::kUnsupported, name, " is iterable; expected a map-style dataset");
  return handle;
}

std::vector<double> read_weights(const accel_value_t* weights, size_t n_sources) {
  if (weights == nullptr) return std::vector<double>(n_sources, 1.0);
  const c10::IValue list = to_ivalue(*weights, "weights");
  require(tree::is_sequence(list), Status::kTypeMismatch, "weights is not a list; expected a list of numbers");
  std::vector<double> numbers;
  for (const c10::IValue& weight : tree::sequence_items(list)) {
    require(weight.isDouble() || weight.isInt(), Status::kTypeMismatch, "weights[", numbers.size(),
            "] is not a number; expected one above 0");
    numbers.push_back(weight.isInt() ? static_cast<double>(weight.toInt()) : weight.toDouble());
  }
  return numbers;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_dataset_subset(accel_dataset_t* dataset, int64_t begin, int64_t end,
                                                   accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::SubsetDataset>(check_numbered(dataset, "dataset").dataset, begin, end);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_concatenate(accel_dataset_t* const* datasets, size_t n_datasets,
                                                        accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_array(check_pointer(datasets, "datasets"), n_datasets, "datasets");
    std::vector<std::shared_ptr<const data::Dataset>> parts;
    for (size_t i = 0; i < n_datasets; ++i) parts.push_back(check_numbered(datasets[i], "datasets[i]").dataset);
    return std::make_shared<data::ConcatenatedDataset>(std::move(parts));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_as_stream(accel_dataset_t* dataset, int64_t seed, accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::DatasetAsIterable>(check_numbered(dataset, "dataset").dataset, optional_number(seed));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_merge(accel_dataset_t* const* sources, size_t n_sources,
                                                  const accel_value_t* weights, int64_t seed, accel_merge_end_t end,
                                                  accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_array(check_pointer(sources, "sources"), n_sources, "sources");
    std::vector<std::shared_ptr<const data::IterableDataset>> streams;
    for (size_t i = 0; i < n_sources; ++i) {
      const accel_dataset& source = check(sources[i], "sources[i]");
      streams.push_back(source.iterable != nullptr
                            ? source.iterable
                            : std::make_shared<const data::DatasetAsIterable>(source.dataset, std::nullopt));
    }
    require(end >= ACCEL_MERGE_END_FIRST && end <= ACCEL_MERGE_END_ALL, Status::kInvalidArgument, "end is ", end,
            "; expected one of ACCEL_MERGE_END_*");
    const std::vector<double> numbers = read_weights(weights, n_sources);
    return std::make_shared<data::InterleavedDatasets>(std::move(streams), numbers, seed,
                                                       static_cast<data::InterleavedDatasets::End>(end));
  });
}

ACCEL_FUNCTION accel_dataset_t* accel_dataset_retain(accel_dataset_t* dataset) {
  return retain_handle(__func__, dataset, "dataset");
}

ACCEL_FUNCTION void accel_dataset_release(accel_dataset_t* dataset) { release_handle(dataset); }

ACCEL_FUNCTION int64_t accel_dataset_length(const accel_dataset_t* dataset) {
  return guarded_value<int64_t>(__func__, -1, [&] {
    const accel_dataset& handle = check(dataset, "dataset");
    if (handle.iterable == nullptr) return handle.dataset->length();
    const auto length = handle.iterable->length();
    require(length.has_value(), Status::kUnsupported,
            "the dataset is iterable and its length is not known; expected a map-style dataset, or a known length");
    return *length;
  });
}

ACCEL_FUNCTION int64_t accel_dataset_num_skipped(const accel_dataset_t* dataset) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(dataset, "dataset").dataset->num_skipped(); });
}

ACCEL_FUNCTION accel_status_t accel_dataset_item(const accel_dataset_t* dataset, int64_t index, accel_value_t* out) {
  return guarded(__func__, [&] { give(check_pointer(out, "out"), check(dataset, "dataset").dataset->item(index)); });
}

}  // namespace accel::capi
