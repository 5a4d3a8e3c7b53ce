// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include "device.hpp"
#include "settings.hpp"

namespace simulated_device {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator(c10::DeviceIndex device, at::Generator host)
      : GeneratorImpl(c10::Device(kDeviceType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  const at::Generator& host() const { return host_; }

  void set_current_seed(uint64_t seed) override { host_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host_.set_offset(offset); }
  uint64_t get_offset() const override { return host_.get_offset(); }
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override { return host_.seed(); }
  void set_state(const c10::TensorImpl& state) override { host_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host_.unsafeGetGeneratorImpl()->get_state(); }

 private:
  GeneratorImpl* clone_impl() const override { return new Generator(device_.index(), host_.clone()); }

  mutable at::Generator host_;
};

}  // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  const c10::DeviceIndex index = usable_device(device).index();
  return at::make_generator<Generator>(index, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>;
    for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index)
      made->push_back(at::make_generator<Generator>(index, at::detail::createCPUGenerator()));
    return made;
  }();
  return (*generators)[static_cast<size_t>(usable_device(device).index())];
}

at::Generator host_generator(const at::Generator& generator, c10::DeviceIndex device) {
  const c10::Device expected(kDeviceType, device);
  TORCH_CHECK(generator.device() == expected, "expected a generator of ", expected, ", not one of ",
              generator.device());
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host();
}

}  // namespace simulated_device
