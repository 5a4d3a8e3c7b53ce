// SPDX-License-Identifier: Apache-2.0
#include "nn/recompute/activation_checkpointing.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/regular_expression.hpp"
#include "base/split_text.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

using NamedModules = std::vector<std::pair<std::string, const Module*>>;

void add_by_class(const NamedModules& all, const std::string& name, std::set<std::string>& paths) {
  std::set<std::string> kinds;
  bool found = false;
  for (const auto& [path, module] : all) {
    kinds.insert(module->kind());
    if (module->kind() != name) continue;
    paths.insert(path);
    found = true;
  }
  if (found) return;
  std::string known;
  for (const std::string& kind : kinds) known += (known.empty() ? "" : ", ") + kind;
  fail(Status::kNotFound, "class_names has '", name, "', and no module is of this kind; the kinds are ", known);
}

void add_by_path(const NamedModules& all, const std::string& expression, std::set<std::string>& paths) {
  const RegularExpression regex(expression, text("modules is '", expression, "'"), "the whole names of modules");
  bool found = false;
  for (const auto& [path, module] : all) {
    if (!regex.matches(path)) continue;
    paths.insert(path);
    found = true;
  }
  require(found, Status::kNotFound, "modules is '", expression, "', and the whole name of no module matches; ",
          "accel_module_named_modules() gives the names");
}

}  // namespace

void checkpoint_activations(Module& module, const ActivationCheckpointingSettings& settings) {
  const NamedModules all = nn::named_modules(module);
  std::set<std::string> paths;
  for (const std::string& name : split_text(settings.class_names.value)) add_by_class(all, name, paths);
  if (!settings.modules.value.empty()) add_by_path(all, settings.modules, paths);
  if (paths.empty()) paths.insert("");
  std::vector<ModulePtr> chosen;
  for (const std::string& path : paths) {
    chosen.push_back(module.find(path));
    chosen.back()->check_hookable();
  }
  const bool is_on = settings.recompute != Recompute::kNothing;
  const auto shared = is_on ? std::make_shared<const ActivationCheckpointingSettings>(settings) : nullptr;
  for (const ModulePtr& one : chosen) one->set_activation_checkpointing(shared);
}

}  // namespace accel::nn
