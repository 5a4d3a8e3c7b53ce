// SPDX-License-Identifier: Apache-2.0
// Section 9: loaders.
#include "data/dataloader.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/dataloader.hpp"
#include "capi/values/value.hpp"
#include "data/prepared_dataloader.hpp"
#include "data/rank_share.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

data::LoaderData data_of(const accel_dataset& handle, const accel_dataloader_options_t& options) {
  data::LoaderData data;
  if (handle.iterable != nullptr) {
    data.iterable = handle.iterable;
  } else {
    data.dataset = handle.dataset;
  }
  if (options.sampler != nullptr) data.sampler = check(options.sampler, "options.sampler").sampler;
  return data;
}

std::vector<int64_t> indices_of(const c10::IValue& batch) {
  std::vector<int64_t> indices;
  if (batch.isTensor()) {
    const at::Tensor& flat = batch.toTensor();
    require(flat.scalar_type() == at::kLong && flat.dim() == 1, Status::kTypeMismatch,
            "a batch of the batch sampler is a tensor that is not int64 of one dimension");
    const at::Tensor here = flat.cpu().contiguous();
    indices.assign(here.const_data_ptr<int64_t>(), here.const_data_ptr<int64_t>() + here.numel());
    return indices;
  }
  require(tree::is_sequence(batch), Status::kTypeMismatch, "a batch of the batch sampler is a ", tree::kind_name(batch),
          "; expected a list of integers or an int64 tensor");
  for (const auto& index : tree::sequence_items(batch)) {
    require(index.isInt(), Status::kTypeMismatch, "an index of the batch sampler is a ", tree::kind_name(index),
            "; expected an integer");
    indices.push_back(index.toInt());
  }
  return indices;
}

data::CallbackBatchSampler::Batches batches_by(Callback<accel_batch_sampler_fn> callback) {
  return [callback = std::move(callback)](int64_t epoch) {
    accel_value_t made = ACCEL_VALUE_INIT;
    const DisposeValue dispose(made);
    callback.checked("batch sampler", epoch, &made);
    const c10::IValue batches = to_ivalue(made, "the batches of the batch sampler");
    require(tree::is_sequence(batches), Status::kTypeMismatch, "the batch sampler gave a ", tree::kind_name(batches),
            "; expected a list of batches");
    std::vector<std::vector<int64_t>> lists;
    for (const auto& batch : tree::sequence_items(batches)) lists.push_back(indices_of(batch));
    return lists;
  };
}

data::DataLoader& plain_loader(const accel_dataloader_t* loader) {
  auto* const plain = dynamic_cast<data::DataLoader*>(check(loader, "loader").loader.get());
  require(plain != nullptr, Status::kInvalidState, "the loader is prepared already; expected one that was just made");
  return *plain;
}

data::PreparedDataLoader& prepared_loader(const accel_dataloader_t* loader) {
  auto* const prepared = dynamic_cast<data::PreparedDataLoader*>(check(loader, "loader").loader.get());
  require(prepared != nullptr, Status::kInvalidState,
          "the loader is not prepared; expected one of accel_prepare() or accel_prepare_data_loader()");
  return *prepared;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_dataloader_create(accel_dataset_t* dataset,
                                                      const accel_dataloader_options_t* options,
                                                      accel_dataloader_t** out) {
  return guarded(__func__, out, [&] {
    const accel_dataset& items = check(dataset, "dataset");
    const data::LoaderData source = data_of(items, given_options(options, "options"));
    return std::make_shared<data::DataLoader>(source, data::LoaderOptions{read_settings(options, "options")});
  });
}

ACCEL_FUNCTION accel_dataloader_t* accel_dataloader_retain(accel_dataloader_t* loader) {
  return retain_handle(__func__, loader, "loader");
}

ACCEL_FUNCTION void accel_dataloader_release(accel_dataloader_t* loader) { release_handle(loader); }

ACCEL_FUNCTION accel_status_t accel_dataloader_set_collate(accel_dataloader_t* loader, accel_collate_fn collate,
                                                           void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_collate_fn> callback(collate, user_data, destroy);
    data::DataLoader& engine = plain_loader(loader);
    check_pointer(collate, "collate");
    engine.set_collate([callback](std::vector<c10::IValue> items) {
      auto list = tree::new_list();
      list.reserve(items.size());
      for (auto& item : items) list.push_back(std::move(item));
      accel_value_t given = from_ivalue(list), made = ACCEL_VALUE_INIT;
      const DisposeValue dispose_given(given), dispose_made(made);
      callback.checked("collate", &given, &made);
      return to_ivalue(made, "the batch of collate");
    });
  });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_set_batch_sampler(accel_dataloader_t* loader,
                                                                 accel_batch_sampler_fn batches, void* user_data,
                                                                 accel_destroy_fn destroy, int64_t batch_size) {
  return guarded(__func__, [&] {
    const Callback<accel_batch_sampler_fn> callback(batches, user_data, destroy);
    data::DataLoader& engine = plain_loader(loader);
    check_pointer(batches, "batches");
    engine.set_batch_sampler(std::make_shared<data::CallbackBatchSampler>(
        batches_by(callback), optional_number(batch_size), engine.input().drop_last()));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_set_slice(accel_dataloader_t* loader, accel_slice_fn slice,
                                                         void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_slice_fn> callback(slice, user_data, destroy);
    data::DataLoader& engine = plain_loader(loader);
    check_pointer(slice, "slice");
    engine.set_slice(
        [callback](const c10::IValue& rows, int64_t begin, int64_t end, int64_t process_index, int64_t num_processes) {
          accel_value_t given = from_ivalue(rows), made = ACCEL_VALUE_INIT;
          const DisposeValue dispose_given(given), dispose_made(made);
          callback.checked("slice", &given, begin, end, static_cast<int32_t>(process_index),
                           static_cast<int32_t>(num_processes), &made);
          return to_ivalue(made, "the batch of slice");
        });
  });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_next(accel_dataloader_t* loader, accel_value_t* out) {
  return guarded(__func__, [&] {
    data::Loader& engine = *check(loader, "loader").loader;
    check_pointer(out, "out");
    const auto batch = engine.next();
    if (!batch) return ACCEL_ITER_END;
    give(out, *batch);
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION int64_t accel_dataloader_length(const accel_dataloader_t* loader) {
  return guarded_value<int64_t>(__func__, -1, [&] {
    const auto length = check(loader, "loader").loader->length();
    require(length.has_value(), Status::kUnsupported, "the stream of the loader does not say how many batches it has");
    return *length;
  });
}

ACCEL_FUNCTION int64_t accel_dataloader_total_batch_size(const accel_dataloader_t* loader) {
  return guarded_value<int64_t>(__func__, -1, [&] {
    const auto size = check(loader, "loader").loader->total_batch_size();
    require(size.has_value(), Status::kUnsupported, "the batches of the loader may have any size");
    return *size;
  });
}

ACCEL_FUNCTION int64_t accel_dataloader_total_dataset_length(const accel_dataloader_t* loader) {
  return guarded_value<int64_t>(__func__, -1, [&] {
    const auto length = check(loader, "loader").loader->input().length();
    require(length.has_value(), Status::kUnsupported, "the stream of the loader does not say how many items it has");
    return *length;
  });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_config(const accel_dataloader_t* loader, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const data::ShardOptions& config = prepared_loader(loader).sharding();
    c10::impl::GenericDict fields = tree::new_map();
    const auto insert = [&](const char* name, c10::IValue value) {
      fields.insert(std::string(name), std::move(value));
    };
    insert("even_batches", config.even_batches.value);
    insert("split_batches", config.splits_batches());
    insert("put_on_device", config.device.has_value());
    insert("non_blocking", config.non_blocking.value);
    insert("dispatch_batches", config.dispatch_batches.value);
    insert("use_seedable_sampler", config.use_seedable_sampler.value);
    insert("data_seed", config.data_seed.value ? c10::IValue(*config.data_seed) : c10::IValue());
    insert("use_stateful_dataloader", config.use_stateful_dataloader.value);
    insert("sequence_keys", config.sequence_keys.value);
    return from_ivalue(fields);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_set_even_batches(accel_dataloader_t* loader, int32_t even_batches) {
  return guarded(__func__, [&] { prepared_loader(loader).set_even_batches(read_flag(even_batches, "even_batches")); });
}

ACCEL_FUNCTION int64_t accel_dataloader_epoch(const accel_dataloader_t* loader) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(loader, "loader").loader->epoch(); });
}

ACCEL_FUNCTION int64_t accel_dataloader_valid_rows(const accel_dataloader_t* loader) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(loader, "loader").loader->valid_rows(); });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_set_epoch(accel_dataloader_t* loader, int64_t epoch) {
  return guarded(__func__, [&] { check(loader, "loader").loader->set_epoch(epoch); });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_state_dict(const accel_dataloader_t* loader, accel_value_t* out) {
  return guarded(__func__, [&] { give(check_pointer(out, "out"), check(loader, "loader").loader->state_dict()); });
}

ACCEL_FUNCTION accel_status_t accel_dataloader_load_state_dict(accel_dataloader_t* loader,
                                                               const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    data::Loader& engine = *check(loader, "loader").loader;
    engine.load_state_dict(to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict"));
  });
}

ACCEL_FUNCTION accel_status_t accel_skip_first_batches(accel_dataloader_t* loader, int64_t num_batches,
                                                       accel_dataloader_t** out) {
  return guarded(__func__, out, [&] { return check(loader, "loader").loader->skip_first(num_batches); });
}

}  // namespace accel::capi
