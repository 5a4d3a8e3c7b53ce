// SPDX-License-Identifier: Apache-2.0
// The arguments of a loader: the data, its order, and how batches are made. @accelerate torch.utils.data.DataLoader
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "config/generated/settings/dataloader/dataloader.hpp"
#include "data/batches/batch_sampler.hpp"
#include "data/collate.hpp"
#include "data/dataset.hpp"
#include "data/iterable_dataset.hpp"
#include "data/sampler.hpp"

namespace accel::data {

// Picks the rows of one rank from those of all ranks together.
using SliceFunction = std::function<c10::IValue(const c10::IValue& rows, int64_t begin, int64_t end,
                                                int64_t process_index, int64_t num_processes)>;

// A dataset or an iterable dataset. Indices of a dataset come from one of the samplers, or else from the loader's own
// order.
struct LoaderData {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const IterableDataset> iterable;
  std::shared_ptr<const Sampler> sampler;
  std::shared_ptr<const BatchSampler> batch_sampler;
};

// The settings of a loader, and the application's functions.
struct LoaderOptions : DataloaderSettings {
  SliceFunction slice = {};               // how rank 0 cuts rows that it reads for all; may be empty
  CollateFunction collate_function = {};  // makes batches; empty: they are made as the settings say
  bool page_locked = false;               // host memory of the batches; the loader decides when an epoch begins

  Collation collation() const;
};

struct LoaderInput {
  LoaderData data;
  LoaderOptions options;

  // Throws for data and options that contradict each other.
  void check() const;

  std::shared_ptr<const BatchSampler> batch_sampler() const;  // of a dataset
  std::optional<int64_t> batch_size() const;                  // unset: any
  bool drop_last() const;
  // Whether reading a batch runs the application's code.
  bool calls_back() const;
  // Items of an epoch; nothing where an iterable dataset does not know them.
  std::optional<int64_t> length() const;
};

}  // namespace accel::data
