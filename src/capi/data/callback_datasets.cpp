// SPDX-License-Identifier: Apache-2.0
// Section 9: datasets with callbacks of the application.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/values/value.hpp"
#include "data/datasets/callback_dataset.hpp"
#include "data/iterable_datasets/callback_iterable_dataset.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

data::ItemFunctions functions_of(const Callback<accel_dataset_length_fn>& length,
                                 const Callback<accel_dataset_item_fn>& item,
                                 const std::optional<Callback<accel_dataset_items_fn>>& items,
                                 const std::optional<Callback<accel_dataset_epoch_fn>>& set_epoch) {
  data::ItemFunctions functions;
  if (set_epoch)
    functions.begin_epoch = [set_epoch = *set_epoch](int64_t epoch) { set_epoch.checked("set_epoch", epoch); };
  functions.length = [length] { return length.checked("length"); };
  functions.get = [item](int64_t index) {
    accel_value_t value = ACCEL_VALUE_INIT;
    const DisposeValue dispose(value);
    item.checked("item", index, &value);
    return to_ivalue(value, "the item of the callback");
  };
  if (!items) return functions;
  functions.get_items = [items = *items](c10::IntArrayRef indices) {
    accel_value_t values = ACCEL_VALUE_INIT;
    const DisposeValue dispose(values);
    items.checked("items", indices.data(), indices.size(), &values);
    const c10::IValue list = to_ivalue(values, "the items of the callback");
    require(tree::is_sequence(list), Status::kTypeMismatch, "the callback items gave no list; expected one with ",
            indices.size(), " items");
    return tree::sequence_items(list).vec();
  };
  return functions;
}

data::IterableDatasetFunctions functions_of(const Callback<accel_stream_begin_fn>& begin,
                                            const Callback<accel_stream_next_fn>& next,
                                            const std::optional<Callback<accel_stream_skip_fn>>& skip,
                                            const std::optional<Callback<accel_stream_end_fn>>& end) {
  data::IterableDatasetFunctions functions;
  functions.begin = [begin](int64_t epoch, int64_t shard, int64_t num_readers) {
    return begin.checked("begin", epoch, shard, num_readers);
  };
  functions.next = [next](int64_t reader) -> std::optional<c10::IValue> {
    accel_value_t value = ACCEL_VALUE_INIT;
    const DisposeValue dispose(value);
    if (next.checked("next", reader, &value) == ACCEL_ITER_END) return std::nullopt;
    return to_ivalue(value, "the item of the callback");
  };
  if (skip)
    functions.skip = [skip = *skip](int64_t reader, int64_t count) { return skip.checked("skip", reader, count); };
  if (end) functions.end = [end = *end](int64_t reader) { end(reader); };
  return functions;
}

template <typename Function, typename Other>
std::optional<Callback<Function>> optional_callback(const Callback<Other>& registration, Function function) {
  if (function == nullptr) return std::nullopt;
  return registration.with(function);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_dataset_create(accel_dataset_length_fn length, accel_dataset_item_fn item,
                                                   accel_dataset_items_fn items, accel_dataset_epoch_fn set_epoch,
                                                   void* user_data, accel_destroy_fn destroy, accel_dataset_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_dataset_length_fn> registration(length, user_data, destroy);
    check_pointer(length, "length");
    check_pointer(item, "item");
    check_pointer(out, "out");
    write_output(out, std::make_shared<data::CallbackDataset>(
                          functions_of(registration, registration.with(item), optional_callback(registration, items),
                                       optional_callback(registration, set_epoch))));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_create_stream(accel_stream_begin_fn begin, accel_stream_next_fn next,
                                                          accel_stream_skip_fn skip, accel_stream_end_fn end,
                                                          void* user_data, accel_destroy_fn destroy, int64_t length,
                                                          int64_t num_shards, accel_dataset_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_stream_begin_fn> registration(begin, user_data, destroy);
    check_pointer(begin, "begin");
    check_pointer(next, "next");
    check_pointer(out, "out");
    write_output(out, std::make_shared<data::CallbackIterableDataset>(
                          functions_of(registration, registration.with(next), optional_callback(registration, skip),
                                       optional_callback(registration, end)),
                          optional_number(length), num_shards));
  });
}

}  // namespace accel::capi
