// SPDX-License-Identifier: Apache-2.0
#include "nn/module.hpp"

#include <memory>
#include <utility>

#include "accel.h"
#include "accelerator/prepared_model.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/module.hpp"
#include "capi/models/device.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/callback_module.hpp"
#include "nn/creation_device.hpp"
#include "nn/module_shapes.hpp"
#include "nn/module_sizes.hpp"
#include "nn/module_walks.hpp"
#include "nn/package/package_module.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "nn/torchscript_module.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

struct ReleaseModule {
  void operator()(accel_module_t* module) const { accel_module_release(module); }
};
using ModuleHandle = std::unique_ptr<accel_module_t, ReleaseModule>;

c10::impl::GenericDict kinds_of(const std::vector<std::pair<std::string, const nn::Module*>>& modules) {
  c10::impl::GenericDict map = tree::new_map();
  for (const auto& [path, module] : modules) map.insert(path, module->kind());
  return map;
}

// Inputs for a callback: an array that owns its values.
class GivenValues {
 public:
  explicit GivenValues(const nn::Inputs& inputs) {
    values_.reserve(inputs.size());
    for (const c10::IValue& input : inputs) values_.push_back(from_ivalue(input));
  }
  ~GivenValues() {
    for (accel_value_t& value : values_) accel_value_dispose(&value);
  }
  GivenValues(const GivenValues&) = delete;
  GivenValues& operator=(const GivenValues&) = delete;
  const std::vector<accel_value_t>& get() const { return values_; }

 private:
  std::vector<accel_value_t> values_;
};

constexpr accel_value_t kUnwritten{-1, 0, {0}};  // no kind of its own: NONE may be what a forward means

nn::Forward forward_of(Callback<accel_forward_fn> callback) {
  return [callback = std::move(callback)](nn::Module& module, const nn::Inputs& inputs) {
    const ModuleHandle handle(new accel_module(module.shared_from_this()));
    const GivenValues given(inputs);
    accel_value_t output = kUnwritten;
    const DisposeValue dispose(output);
    callback.checked("forward", handle.get(), given.get().data(), given.get().size(), &output);
    require(output.kind != kUnwritten.kind, Status::kTypeMismatch,
            "the callback forward returned ACCEL_OK and did not write out_output; expected a value there");
    return to_ivalue(output, "the output of forward");
  };
}

// The replaced values; nothing if the hook keeps them.
std::optional<nn::Inputs> run_hook(const Callback<accel_module_hook_fn>& callback, nn::Module& module,
                                   const nn::Inputs& values) {
  const ModuleHandle handle(new accel_module(module.shared_from_this()));
  c10::List<c10::IValue> list = tree::new_list();
  for (const c10::IValue& value : values) list.push_back(value);
  accel_value_t given = from_ivalue(list);
  const DisposeValue dispose_given(given);
  accel_value_t replaced = ACCEL_VALUE_INIT;
  const DisposeValue dispose_replaced(replaced);
  callback.checked("hook", handle.get(), &given, &replaced);
  if (replaced.kind == ACCEL_VALUE_NONE) return std::nullopt;
  const c10::IValue items = to_ivalue(replaced, "the values of the hook");
  require(tree::is_sequence(items), Status::kTypeMismatch,
          "a hook gave a value that is not a list; expected a list of the new values, or NONE to keep them");
  return tree::sequence_items(items).vec();
}

nn::PreHook pre_hook_of(Callback<accel_module_hook_fn> callback) {
  return [callback = std::move(callback)](nn::Module& module, const nn::Inputs& inputs) {
    return run_hook(callback, module, inputs);
  };
}

nn::PostHook post_hook_of(Callback<accel_module_hook_fn> callback) {
  return [callback = std::move(callback)](nn::Module& module, const nn::Inputs&,
                                          const c10::IValue& output) -> std::optional<c10::IValue> {
    std::optional<nn::Inputs> replaced = run_hook(callback, module, {output});
    if (!replaced) return std::nullopt;
    require(replaced->size() == 1, Status::kInvalidArgument, "a hook after forward gave ", replaced->size(),
            " values; expected one output");
    return std::move(replaced->front());
  };
}

nn::Module& module_of(const accel_module_t* module) { return *check(module, "module").module; }

int64_t add_hook(nn::Module& module, int32_t when, Callback<accel_module_hook_fn> callback) {
  switch (when) {
    case ACCEL_HOOK_FORWARD_PRE:
      return module.hooks().add_pre_hook(pre_hook_of(std::move(callback)));
    case ACCEL_HOOK_FORWARD:
      return module.hooks().add_post_hook(post_hook_of(std::move(callback)));
    case ACCEL_HOOK_BACKWARD_PRE:
      return module.hooks().add_backward_pre_hook(pre_hook_of(std::move(callback)));
    case ACCEL_HOOK_BACKWARD:
      return module.hooks().add_backward_hook(pre_hook_of(std::move(callback)));
    default:
      fail(Status::kInvalidArgument, "when is ", when, "; expected one of ACCEL_HOOK_*");
  }
}

bool include_buffers_of(int32_t given) {
  if (const auto flag = optional_flag(given, "include_buffers")) return *flag;
  return environment_flag("ACCELERATE_INIT_INCLUDE_BUFFERS").value_or(false);
}

nn::NamedInputs read_named_inputs(const accel_value_t* values) {
  nn::NamedInputs named;
  if (values == nullptr || values->kind == ACCEL_VALUE_NONE) return named;
  require(values->kind == ACCEL_VALUE_MAP, Status::kTypeMismatch,
          "named_inputs is not a map; expected a map from names to values");
  for (const auto& member : to_ivalue(*values, "named_inputs").toGenericDict()) {
    if (!member.key().isString()) fail(Status::kTypeMismatch, "named_inputs has a key that is not text");
    named.emplace_back(member.key().toStringRef(), member.value());
  }
  return named;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_module_create(const char* kind, accel_module_t** out) {
  return guarded(__func__, out, [&] { return std::make_shared<nn::CallbackModule>(check_pointer(kind, "kind")); });
}

ACCEL_FUNCTION accel_status_t accel_module_load_torchscript(const char* path,
                                                            const accel_torchscript_options_t* options,
                                                            accel_module_t** out) {
  return guarded(__func__, out,
                 [&] { return nn::load_torchscript(check_pointer(path, "path"), read_settings(options, "options")); });
}

ACCEL_FUNCTION accel_status_t accel_module_from_package(const char* path, const accel_package_options_t* options,
                                                        accel_module_t** out) {
  return guarded(__func__, out,
                 [&] { return nn::load_package(check_pointer(path, "path"), read_settings(options, "options")); });
}

ACCEL_FUNCTION accel_status_t accel_module_from_config(const char* config, accel_module_t** out) {
  return guarded(__func__, out, [&] { return nn::module_from_config(check_pointer(config, "config")); });
}

ACCEL_FUNCTION accel_status_t accel_init_empty_weights_begin(int32_t include_buffers, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    return open_scope<nn::CreationDevice>(c10::Device(c10::kMeta), include_buffers_of(include_buffers));
  });
}

ACCEL_FUNCTION accel_status_t accel_init_on_device_begin(const accel_device_t* device, int32_t include_buffers,
                                                         accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    return open_scope<nn::CreationDevice>(to_device(device), include_buffers_of(include_buffers));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_shapes_from_weights(const char* path, accel_module_t** out) {
  return guarded(__func__, out, [&] {
    const std::string file = check_pointer(path, "path");
    return nn::shapes_from_state_dict(checkpoint::load_state_dict(file, checkpoint::Framework::kAny));
  });
}

ACCEL_FUNCTION accel_status_t accel_calculate_maximum_sizes(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::MaximumSizes sizes = nn::calculate_maximum_sizes(module_of(module));
    auto map = tree::new_map();
    map.insert("total", sizes.total);
    map.insert("largest", sizes.largest);
    auto names = tree::new_list();
    for (const std::string& name : sizes.largest_names) names.push_back(name);
    map.insert("names", names);
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_module_t* accel_module_retain(accel_module_t* module) {
  return retain_handle(__func__, module, "module");
}

ACCEL_FUNCTION void accel_module_release(accel_module_t* module) { release_handle(module); }

ACCEL_FUNCTION const char* accel_module_kind(const accel_module_t* module) {
  return guarded_value<const char*>(__func__, nullptr, [&] { return module_of(module).kind().c_str(); });
}

ACCEL_FUNCTION accel_status_t accel_module_add_parameter(accel_module_t* module, const char* name,
                                                         accel_tensor_t* tensor, int32_t requires_grad) {
  return guarded(__func__, [&] {
    module_of(module).add_parameter(check_pointer(name, "name"), check(tensor, "tensor").tensor, requires_grad != 0);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_add_buffer(accel_module_t* module, const char* name, accel_tensor_t* tensor,
                                                      int32_t persistent) {
  return guarded(__func__, [&] {
    module_of(module).add_buffer(check_pointer(name, "name"), check(tensor, "tensor").tensor, persistent != 0);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_add_child(accel_module_t* module, const char* name, accel_module_t* child) {
  return guarded(__func__,
                 [&] { module_of(module).add_child(check_pointer(name, "name"), check(child, "child").module); });
}

ACCEL_FUNCTION accel_status_t accel_module_replace_tensor(accel_module_t* module, const char* name,
                                                          accel_tensor_t* tensor) {
  return guarded(
      __func__, [&] { module_of(module).replace_tensor(check_pointer(name, "name"), check(tensor, "tensor").tensor); });
}

ACCEL_FUNCTION accel_status_t accel_module_replace_child(accel_module_t* module, const char* name,
                                                         accel_module_t* child) {
  return guarded(__func__,
                 [&] { module_of(module).replace_child(check_pointer(name, "name"), check(child, "child").module); });
}

ACCEL_FUNCTION accel_status_t accel_module_remove(accel_module_t* module, const char* name) {
  return guarded(__func__, [&] { module_of(module).remove(check_pointer(name, "name")); });
}

ACCEL_FUNCTION accel_status_t accel_module_set_forward(accel_module_t* module, accel_forward_fn forward,
                                                       void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    Callback<accel_forward_fn> callback(forward, user_data, destroy);
    nn::Module& owner = module_of(module);
    check_pointer(forward, "forward");
    auto* callback_module = dynamic_cast<nn::CallbackModule*>(&owner);
    require(callback_module != nullptr, Status::kInvalidState, "a module of kind '", owner.kind(),
            "' has a forward of its own; expected one that accel_module_create() made");
    callback_module->set_forward(forward_of(std::move(callback)));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_add_hook(accel_module_t* module, int32_t when, accel_module_hook_fn hook,
                                                    void* user_data, accel_destroy_fn destroy, int64_t* out_id) {
  return guarded(__func__, [&] {
    Callback<accel_module_hook_fn> callback(hook, user_data, destroy);
    nn::Module& owner = module_of(module);
    check_pointer(hook, "hook");
    const int64_t id = add_hook(owner, when, std::move(callback));
    if (out_id != nullptr) *out_id = id;
  });
}

ACCEL_FUNCTION accel_status_t accel_module_remove_hook(accel_module_t* module, int64_t id) {
  return guarded(__func__, [&] {
    require(module_of(module).hooks().remove_hook(id), Status::kNotFound, "hook ", id,
            " is not there; expected what accel_module_add_hook() gave for this module");
  });
}

ACCEL_FUNCTION accel_status_t accel_module_set_no_grad(accel_module_t* module, int32_t no_grad) {
  return guarded(__func__, [&] { module_of(module).set_no_grad(read_flag(no_grad, "no_grad")); });
}

ACCEL_FUNCTION accel_status_t accel_checkpoint_activations(accel_module_t* module,
                                                           const accel_activation_checkpointing_options_t* options) {
  return guarded(__func__, [&] {
    const nn::ModulePtr model = accelerator::unwrap_model(check(module, "module").module);
    nn::checkpoint_activations(*model, read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_call(accel_module_t* module, const accel_value_t* inputs, size_t n_inputs,
                                                accel_value_t* out) {
  return guarded(__func__, out,
                 [&] { return from_ivalue(module_of(module).call(to_ivalues(inputs, n_inputs, "inputs"))); });
}

ACCEL_FUNCTION accel_status_t accel_module_call_kw(accel_module_t* module, const accel_value_t* inputs, size_t n_inputs,
                                                   const accel_value_t* named_inputs, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    nn::Module& owner = module_of(module);
    nn::Inputs values = to_ivalues(inputs, n_inputs, "inputs");
    return from_ivalue(owner.call(std::move(values), read_named_inputs(named_inputs)));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_set_input_names(accel_module_t* module, const char* names) {
  return guarded(__func__, [&] {
    auto* const callback_module = dynamic_cast<nn::CallbackModule*>(&module_of(module));
    check_pointer(names, "names");
    require(callback_module != nullptr, Status::kInvalidState, "a module of kind '", module_of(module).kind(),
            "' has names of its own; expected one that accel_module_create() made");
    callback_module->set_input_names(split_text(names));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_child(const accel_module_t* module, const char* path, accel_module_t** out) {
  return guarded(__func__, out, [&] { return module_of(module).find(check_pointer(path, "path")); });
}

ACCEL_FUNCTION accel_status_t accel_module_tensor(const accel_module_t* module, const char* path,
                                                  accel_tensor_t** out) {
  return guarded(__func__, out, [&] { return nn::find_tensor(module_of(module), check_pointer(path, "path")); });
}

ACCEL_FUNCTION accel_status_t accel_module_named_parameters(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(map_of(nn::named_parameters(module_of(module)))); });
}

ACCEL_FUNCTION accel_status_t accel_module_named_buffers(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(map_of(nn::named_buffers(module_of(module)))); });
}

ACCEL_FUNCTION accel_status_t accel_module_named_modules(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(kinds_of(nn::named_modules(module_of(module)))); });
}

ACCEL_FUNCTION accel_status_t accel_module_children_bottom_up(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(kinds_of(nn::children_bottom_up(module_of(module)))); });
}

ACCEL_FUNCTION accel_status_t accel_module_state_dict(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(map_of(module_of(module).state_dict())); });
}

ACCEL_FUNCTION accel_status_t accel_module_load_state_dict(accel_module_t* module, const accel_value_t* state_dict,
                                                           int32_t strict) {
  return guarded(__func__, [&] {
    nn::Module& owner = module_of(module);
    owner.load_state_dict(read_named_tensors(*check_pointer(state_dict, "state_dict"), "state_dict"), strict != 0);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_to(accel_module_t* module, accel_dtype_t dtype,
                                              const accel_device_t* device) {
  return guarded(__func__, [&] {
    std::optional<at::ScalarType> type;
    if (is_given(dtype)) type = tensor::dtype_from_number(dtype);
    module_of(module).to(type, to_device(device));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_train(accel_module_t* module, int32_t training) {
  return guarded(__func__, [&] { module_of(module).train(training != 0); });
}

ACCEL_FUNCTION accel_status_t accel_module_is_training(const accel_module_t* module, int32_t* out) {
  return guarded(__func__, out, [&] { return module_of(module).is_training() ? 1 : 0; });
}

ACCEL_FUNCTION accel_status_t accel_module_num_parameters(const accel_module_t* module, int64_t* out) {
  return guarded(__func__, out, [&] { return nn::num_parameters(module_of(module)); });
}

ACCEL_FUNCTION accel_status_t accel_module_tie(accel_module_t* module, const char* path, const char* source_path) {
  return guarded(__func__, [&] {
    nn::tie(module_of(module), check_pointer(path, "path"), check_pointer(source_path, "source_path"));
  });
}

}  // namespace accel::capi
