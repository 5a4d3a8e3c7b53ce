// SPDX-License-Identifier: Apache-2.0
#include "precision/autocast_weight_cache.hpp"

#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/external_alias.hpp"

namespace accel::precision {
namespace {

thread_local AutocastWeightCache::Scope* current_scope = nullptr;

// All existing caches, for optimizers. Never destroyed: models may outlive everything else.
struct Registry {
  std::mutex mutex;
  std::vector<AutocastWeightCache*> members;
};

Registry& registry() {
  static Registry& instance = *std::make_unique<Registry>().release();
  return instance;
}

// Autocast casts inside the operators that it wraps, with its own key excluded. Casts of the application itself do not
// use the cache, because it may write to the result.
bool is_autocasting(const at::Tensor& tensor) {
  return c10::impl::tls_is_dispatch_key_excluded(
      at::autocast::get_autocast_dispatch_key_from_device_type(tensor.device().type()));
}

at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pinned, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  const auto cast = [&] {
    return at::compositeexplicitautograd::_to_copy(self, dtype, layout, device, pinned, non_blocking, format);
  };
  const bool is_own = AutocastWeightCache::current() != nullptr && dtype &&
                      (*dtype == at::kBFloat16 || *dtype == at::kHalf) && self.scalar_type() == at::kFloat &&
                      !self.is_inference() && (!device || *device == self.device()) && is_autocasting(self);
  if (!is_own) return cast();
  if (self.requires_grad() && self.is_leaf() && !self.is_view())
    return AutocastWeightCache::current()->cast(self, *dtype);
  ActivationCasts& activations = current_scope->activations();
  at::Tensor values = activations.find(self, *dtype);
  if (!values.defined()) activations.remember(self, values = cast());
  return values;
}

// Below autograd, for which it is an ordinary cast. A plugin that casts by a kernel of its own keeps it: weights on its
// devices are cast in each forward.
void install(c10::DeviceType device) {
  static std::array<std::once_flag, c10::COMPILE_TIME_MAX_DEVICE_TYPES> once;
  std::call_once(once[static_cast<size_t>(device)], [device] {
    const c10::DispatchKey key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
    const auto cast = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
    if (cast.hasKernelForDispatchKey(key)) return;
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library->impl("_to_copy", TORCH_FN(to_copy));
    static_cast<void>(library.release());  // never destroyed: operators may run while the process ends
  });
}

}  // namespace

AutocastWeightCache::AutocastWeightCache(c10::DeviceType device) {
  install(device);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.members.push_back(this);
}

AutocastWeightCache::~AutocastWeightCache() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.members.erase(std::find(all.members.begin(), all.members.end(), this));
}

AutocastWeightCache::Scope::Scope(AutocastWeightCache* casts)
    : casts_(casts), former_(std::exchange(current_scope, this)) {}
AutocastWeightCache::Scope::~Scope() { current_scope = former_; }

AutocastWeightCache* AutocastWeightCache::current() {
  return current_scope == nullptr ? nullptr : current_scope->casts_;
}

bool AutocastWeightCache::exists(const AutocastWeightCache* casts) {
  const std::lock_guard lock(registry().mutex);
  const auto& members = registry().members;
  return std::find(members.begin(), members.end(), casts) != members.end();
}

bool AutocastWeightCache::Cast::is_of(const at::Tensor& now) const {
  return values.defined() && !may_differ && weight._unsafe_get_target() == now.unsafeGetTensorImpl() &&
         memory._unsafe_get_target() == now.storage().unsafeGetStorageImpl() && version == now._version();
}

bool AutocastWeightCache::Cast::fits(const at::Tensor& now, c10::ScalarType dtype) const {
  return values.defined() && values.scalar_type() == dtype && values.device() == now.device() &&
         values.strides() == now.strides() && values.sizes() == now.sizes();
}

at::Tensor AutocastWeightCache::cast(const at::Tensor& weight, c10::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  auto found = casts_.find(weight.unsafeGetTensorImpl());
  if (found == casts_.end())
    found = casts_
                .emplace(weight.unsafeGetTensorImpl(),
                         Cast{decltype(Cast::weight)(weight.getIntrusivePtr()), weight.storage().getWeakStorageImpl(),
                              /*version=*/0, /*may_differ=*/true, at::Tensor()})
                .first;
  Cast& cast = found->second;
  if (cast.is_of(weight) && cast.values.scalar_type() == dtype) return cast.values.variable_data();
  std::vector<Written> written;
  if (!weight.is_cpu() && cast.fits(weight, dtype)) written = outdated(weight.device(), dtype);
  if (written.empty()) written.push_back({&cast, weight});
  write(written, dtype);
  return cast.values.variable_data();
}

std::vector<AutocastWeightCache::Written> AutocastWeightCache::outdated(c10::Device device, c10::ScalarType dtype) {
  std::vector<Written> found;
  for (auto& [_, cast] : casts_) {
    auto locked = cast.weight.lock();
    if (!locked) continue;
    at::Tensor weight(std::move(locked));
    const bool has_numbers = weight.has_storage() && weight.storage().data() != nullptr;  // else they are elsewhere
    if (has_numbers && weight.device() == device && cast.fits(weight, dtype) && !cast.is_of(weight))
      found.push_back({&cast, std::move(weight)});
  }
  return found;
}

void AutocastWeightCache::write(const std::vector<Written>& casts, c10::ScalarType dtype) {
  const c10::InferenceMode not_inference(false);  // a later forward may need a backward
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Scope no_casts(nullptr);
  std::vector<at::Tensor> from, to;
  std::vector<int64_t> versions;
  for (const auto& [cast, weight] : casts) {
    cast->may_differ = true;  // until it is written
    if (!cast->fits(weight, dtype) || cast->values.storage().use_count() > 1)
      cast->values = at::empty_like(weight, weight.options().dtype(dtype));
    from.push_back(weight.variable_data());
    to.push_back(cast->values);
    versions.push_back(weight._version());
  }
  if (to.size() == 1) {
    to[0].copy_(from[0]);
  } else {
    at::_foreach_copy_(to, from);
  }
  for (size_t i = 0; i < casts.size(); ++i) {
    Cast& cast = *casts[i].cast;
    cast.memory = casts[i].weight.storage().getWeakStorageImpl();
    cast.version = versions[i];
    cast.may_differ = false;
  }
}

void AutocastWeightCache::start_accumulation_window() {
  const std::lock_guard lock(mutex_);
  for (auto cast = casts_.begin(); cast != casts_.end();) {
    const auto weight = cast->second.weight.lock();
    if (!weight) {
      cast = casts_.erase(cast);
      continue;
    }
    cast->second.may_differ |= tensor::is_externally_aliased(at::Tensor(weight));
    ++cast;
  }
}

size_t AutocastWeightCache::size() {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(casts_.begin(), casts_.end(), [](const auto& item) {
    const auto weight = item.second.weight.lock();
    return weight && item.second.is_of(at::Tensor(weight));
  }));
}

at::Tensor AutocastWeightCache::take(const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  const auto found = casts_.find(weight.unsafeGetTensorImpl());
  if (found == casts_.end() || !found->second.is_of(weight)) return {};
  at::Tensor& values = found->second.values;
  if (values.storage().use_count() > 1 || values.strides() != weight.strides()) return {};
  return std::move(values);
}

void AutocastWeightCache::put_back(const at::Tensor& weight, at::Tensor values) {
  const std::lock_guard lock(mutex_);
  const auto found = casts_.find(weight.unsafeGetTensorImpl());
  if (found == casts_.end()) return;
  found->second.version = weight._version();
  found->second.may_differ = false;
  found->second.values = std::move(values);
}

CastUpdate::CastUpdate(const at::Tensor& weight) {
  const std::lock_guard lock(registry().mutex);
  for (AutocastWeightCache* const casts : registry().members) {
    values_ = casts->take(weight);
    casts_ = casts;
    if (values_.defined()) return;
  }
}

void CastUpdate::keep(const at::Tensor& weight) {
  if (!values_.defined()) return;
  const std::lock_guard lock(registry().mutex);
  const auto& members = registry().members;
  if (std::find(members.begin(), members.end(), casts_) != members.end()) casts_->put_back(weight, std::move(values_));
}

}  // namespace accel::precision
