// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/exchange_check.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/any.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "base/log.hpp"
#include "base/name_list.hpp"

namespace accel::accelerator {
namespace {

using parallel::UncoveredGradient;

void warn(const std::vector<UncoveredGradient>& gradients, bool were_frozen, const char* advice) {
  std::vector<std::string> names;
  for (const UncoveredGradient& gradient : gradients)
    if (gradient.was_frozen == were_frozen) names.push_back(gradient.name);
  if (!names.empty())
    log(LogLevel::kWarning, "the ranks have not exchanged the gradients of ", list_names(names),
        ", and their weights drift apart unless the program exchanges them: ", advice);
}

}  // namespace

void ExchangeCheck::add(const parallel::ParallelModelPtr& model) {
  if (model->exchange() != nullptr) entries_.push_back({model});
}

bool ExchangeCheck::is_covered(const at::Tensor& parameter) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    const auto model = entry.model.lock();
    return model != nullptr && model->exchange()->covers(parameter);
  });
}

// A gradient of zeros is what zero_grad() has left.
std::vector<UncoveredGradient> ExchangeCheck::find(parallel::GradientExchange& exchange,
                                                   const optim::Optimizer& optimizer) const {
  std::vector<UncoveredGradient> found = exchange.uncovered_gradients();
  if (found.empty()) return found;
  std::unordered_set<const at::TensorImpl*> own;
  for (const at::Tensor& parameter : optimizer.parameters()) own.insert(parameter.unsafeGetTensorImpl());
  const auto is_left_out = [&](const UncoveredGradient& one) {
    return own.count(one.parameter.unsafeGetTensorImpl()) == 0 || is_covered(one.parameter) ||
           !one.parameter.grad().any().item<bool>();
  };
  found.erase(std::remove_if(found.begin(), found.end(), is_left_out), found.end());
  return found;
}

void ExchangeCheck::run(const optim::Optimizer& optimizer) {
  for (Entry& entry : entries_) {
    const auto model = entry.has_warned ? nullptr : entry.model.lock();
    if (model == nullptr) continue;
    const std::vector<UncoveredGradient> gradients = find(*model->exchange(), optimizer);
    entry.has_warned = !gradients.empty();
    warn(gradients, /*were_frozen=*/false,
         "their backward followed no forward of the prepared model that exchanges; call the model that was prepared, "
         "not the one inside, once for each backward and the last time outside of no_sync");
    warn(gradients, /*were_frozen=*/true,
         "they required no gradient when their model was prepared; let them require it before that");
  }
}

}  // namespace accel::accelerator
