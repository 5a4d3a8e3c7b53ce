// SPDX-License-Identifier: Apache-2.0
// Loading and dispatch in one step, and the simple cases of dispatch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bigmodel/dispatch.hpp"
#include "bigmodel/load_checkpoint.hpp"
#include "comm/communicator.hpp"
#include "config/generated/settings/big_model/dispatch.hpp"

namespace accel::bigmodel {

// `main_bytes` as for Dispatch::create(). With settings.broadcast_from_rank0, what is on disk is written to
// settings.offload_folder: other ranks may not see the files of rank 0.
// @accelerate load_checkpoint_and_dispatch
nn::LoadReport load_checkpoint_and_dispatch(nn::Module& model, const nn::NamedTensors& weights, const DeviceMap* map,
                                            const DispatchSettings& settings,
                                            std::optional<int64_t> main_bytes = std::nullopt);

// Into the model; what is on disk is listed in settings.offload_folder.
// @accelerate load_checkpoint_in_model
nn::LoadReport load_checkpoint_in_model(nn::Module& model, const nn::NamedTensors& weights, const DeviceMap* map,
                                        const DispatchSettings& settings);

// Dispatches a model that has weights. Weights of `offloaded`, and then of settings.offload_folder, stand for tensors
// of the same names. Weights on disk that are only in the model are written there.
void dispatch_model(nn::Module& model, const DeviceMap& map, const nn::NamedTensors& offloaded,
                    const DispatchSettings& settings);

// On the device, by default that of the first parameter. `weights`: all that the model has from now on; null: its own.
void cpu_offload(nn::Module& model, std::optional<c10::Device> device, DispatchSettings settings,
                 const nn::NamedTensors* weights = nullptr);
void disk_offload(nn::Module& model, const std::string& folder, std::optional<c10::Device> device,
                  DispatchSettings settings);

// Gives all ranks the weights of rank 0; those of the others are ignored. Collective.
nn::NamedTensors broadcast_weights(comm::Communicator& communicator, const nn::NamedTensors& weights);

}  // namespace accel::bigmodel
