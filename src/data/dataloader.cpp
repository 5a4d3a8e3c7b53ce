// SPDX-License-Identifier: Apache-2.0
#include "data/dataloader.hpp"

#include <utility>

#include "base/error.hpp"

namespace accel::data {

DataLoader::DataLoader(LoaderData data, const LoaderOptions& options)
    : Loader({std::move(data), options}, std::make_shared<BatchShare>()) {}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Sampler> sampler,
                       const LoaderOptions& options)
    : DataLoader({std::move(dataset), nullptr, std::move(sampler), nullptr}, options) {}

std::shared_ptr<Loader> DataLoader::clone() const { return std::make_shared<DataLoader>(input_.data, input_.options); }

void DataLoader::require_unused() const {
  require(!is_running() && state().epoch == 0 && state().batches == 0, Status::kInvalidState,
          "the loader is at work already; expected one that was just made");
}

void DataLoader::set_collate(CollateFunction collate) {
  require_unused();
  input_.options.collate_function = std::move(collate);
}

void DataLoader::set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler) {
  require_unused();
  LoaderInput input = input_;
  input.data.batch_sampler = std::move(batch_sampler);
  input.check();
  input_ = std::move(input);
}

void DataLoader::set_slice(SliceFunction slice) {
  require_unused();
  input_.options.slice = std::move(slice);
}

}  // namespace accel::data
