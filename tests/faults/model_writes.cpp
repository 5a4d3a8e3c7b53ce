// SPDX-License-Identifier: Apache-2.0
// Models in one file or in several, and offload folders: all elements are 1, and become 2.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "bigmodel/offload_folder.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "written_kinds.hpp"

namespace power_cut {
namespace {

using accel::Error;
using accel::Status;
using accel::checkpoint::NamedTensors;

NamedTensors weights(double number, int count) {
  NamedTensors tensors;
  for (int i = 0; i < count; i++) tensors.emplace_back("weight" + std::to_string(i), at::full({5}, number));
  return tensors;
}

// The number of all elements; nothing if they differ, or if there are no tensors.
std::optional<double> number_of(const NamedTensors& tensors) {
  std::set<double> numbers;
  for (const auto& [name, tensor] : tensors) numbers.insert({tensor.min().item<double>(), tensor.max().item<double>()});
  return numbers.size() == 1 ? std::optional(*numbers.begin()) : std::nullopt;
}

struct Model {
  int tensors = 0;  // 0: there is none
  bool is_split = false;
};

accel::SaveModelSettings settings_of(const Model& model, bool safe) {
  accel::SaveModelSettings settings;
  settings.max_shard_size = std::string(model.is_split ? "30" : "10GB");  // one tensor a file
  settings.safe_serialization = safe;
  return settings;
}

Contents read_model(const std::string& folder, const Model& older, const Model& newer) try {
  const NamedTensors tensors = accel::checkpoint::load_state_dict(folder);
  const std::optional<double> number = number_of(tensors);
  const auto count = static_cast<int>(tensors.size());
  if (number == 2.0 && count == newer.tensors) return {Found::kNew};
  return {number == 1.0 && count == older.tensors ? Found::kOld : Found::kLost};
} catch (const Error& error) {
  const bool has_name = std::filesystem::exists(folder + "/model.safetensors") ||
                        std::filesystem::exists(folder + "/model.safetensors.index.json");
  if (older.tensors == 0 && !has_name) return {Found::kOld};
  return {error.status() == Status::kNotFound ? Found::kNothing : Found::kLost, error.message()};
}

Kind model_kind(const char* name, Model older, Model newer, bool safe = true, bool has_links = true) {
  Kind kind;
  kind.name = std::string("model, ") + name;
  const auto save = [=](const std::string& folder, double number, const Model& model) {
    accel::checkpoint::save_model(folder + "/new/model", weights(number, model.tensors), settings_of(model, safe));
  };
  kind.limits.has_links = has_links;
  kind.may_be_nothing = !has_links;
  kind.prepare = [=](const std::string& folder) {
    if (older.tensors > 0) save(folder, 1, older);
  };
  kind.write = [=](const std::string& folder) {
    save(folder, 2, newer);
    promise(1);
  };
  kind.read = [=](const std::string& folder, size_t /*promised*/) {
    return read_model(folder + "/new/model", older, newer);
  };
  kind.go_on = [=](const std::string& folder, size_t /*promised*/) -> std::string {
    save(folder, 2, newer);
    if (read_model(folder + "/new/model", older, newer).found != Found::kNew) return "another save is not read";
    size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder + "/new/model")) entries++;
    const size_t expected = newer.is_split ? static_cast<size_t>(newer.tensors) + 1 : 1;
    return entries == expected ? "" : std::to_string(entries) + " files after another save";
  };
  return kind;
}

// Stops as a process that is gone, when the index names links and one new shard has its name.
class StoppedFiles final : public accel::checkpoint::FileSystem {
 public:
  int rename(const char* from, const char* to) override { return stops() ? -1 : FileSystem::rename(from, to); }
  int remove_file(const char* path) override { return renames_ > 2 ? -1 : FileSystem::remove_file(path); }

 private:
  bool stops() {
    errno = EIO;
    return ++renames_ > 2;
  }
  int renames_ = 0;
};

Kind interrupted_model() {
  const Model model{3, true};
  Kind kind = model_kind("several files behind a cut", model, model);
  kind.prepare = [first = kind.prepare, model](const std::string& folder) {
    first(folder);
    StoppedFiles files;
    try {
      accel::checkpoint::save_model(folder + "/new/model", weights(3, 3), settings_of(model, true), files);
    } catch (const Error&) {
    }
  };
  return kind;
}

// The weights of a folder. Those that are written leave the index first, so that no index names old and new ones.
Contents read_offloaded(const std::string& folder, int older, int newer) try {
  const NamedTensors tensors = accel::bigmodel::open_offload_folder(folder);
  const std::optional<double> number = number_of(tensors);
  if (tensors.empty()) return {Found::kNothing};
  if (number == 2.0 && tensors.size() == static_cast<size_t>(newer)) return {Found::kNew};
  return {number == 1.0 && tensors.size() == static_cast<size_t>(older) ? Found::kOld : Found::kLost};
} catch (const Error& error) {
  const bool has_index = accel::bigmodel::has_offload_index(folder);
  return {!has_index && older == 0 ? Found::kOld : Found::kLost, error.message()};
}

Kind offload_kind(const char* name, int older, int newer) {
  Kind kind;
  kind.name = std::string("offload folder, ") + name;
  const auto write = [](const std::string& folder, double number, int count) {
    accel::bigmodel::offload_state_dict(folder + "/new/weights", weights(number, count));
  };
  kind.may_be_nothing = true;
  kind.prepare = [=](const std::string& folder) {
    if (older > 0) write(folder, 1, older);
  };
  kind.write = [=](const std::string& folder) {
    write(folder, 2, newer);
    promise(1);
  };
  kind.read = [=](const std::string& folder, size_t /*promised*/) {
    return read_offloaded(folder + "/new/weights", older, newer);
  };
  kind.go_on = [=](const std::string& folder, size_t /*promised*/) -> std::string {
    write(folder, 2, newer);
    return read_offloaded(folder + "/new/weights", older, newer).found == Found::kNew ? "" : "it is not read";
  };
  return kind;
}

}  // namespace

std::vector<Kind> models() {
  const Model none{}, one{3, false}, split{3, true}, fewer{2, true};
  return {
      model_kind("the first", none, one),
      model_kind("the first in several files", none, split),
      model_kind("one file", one, one),
      model_kind("several files over one", one, split),
      model_kind("one file over several", split, one),
      model_kind("several files over fewer", fewer, split),
      model_kind("several files of the same names", split, split),
      model_kind("torch files of the same names", split, split, /*safe=*/false),
      model_kind("several files without links", split, split, /*safe=*/true, /*has_links=*/false),
      interrupted_model(),
  };
}

std::vector<Kind> offload_folders() {
  return {
      offload_kind("the first", 0, 3),
      offload_kind("the same weights", 3, 3),
      offload_kind("more weights", 2, 3),
  };
}

}  // namespace power_cut
