// SPDX-License-Identifier: Apache-2.0
// Training of prepared models with a different number of batches on each rank. @accelerate join_uneven_inputs
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "parallel/uneven_inputs.hpp"

namespace accel::accelerator {

class JoinedInputs {
 public:
  // `even_batches` is for epochs of prepared loaders that begin meanwhile; nothing: as prepared.
  JoinedInputs(std::shared_ptr<Accelerator> accelerator, const std::vector<nn::ModulePtr>& models,
               std::optional<bool> even_batches);
  ~JoinedInputs();
  JoinedInputs(const JoinedInputs&) = delete;
  JoinedInputs& operator=(const JoinedInputs&) = delete;

  // Returns when no rank has inputs left.
  void finish();

 private:
  std::shared_ptr<Accelerator> accelerator_;
  std::vector<std::pair<std::shared_ptr<data::PreparedDataLoader>, bool>> former_even_;
  std::optional<parallel::UnevenInputs> inputs_;
};

}  // namespace accel::accelerator
