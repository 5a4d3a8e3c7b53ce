// SPDX-License-Identifier: Apache-2.0
// The application's loader: batches of a dataset or an iterable dataset. @accelerate torch.utils.data.DataLoader
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <vector>

#include "data/loader.hpp"

namespace accel::data {

class DataLoader final : public Loader {
 public:
  DataLoader(LoaderData data, const LoaderOptions& options);
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
             const LoaderOptions& options);

  // Only before the first epoch begins.
  void set_collate(CollateFunction collate);
  void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
  void set_slice(SliceFunction slice);

 private:
  std::shared_ptr<Loader> clone() const override;
  void require_unused() const;
};

}  // namespace accel::data
