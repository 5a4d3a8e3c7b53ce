// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/mapped_files.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "os/bus_error_guard.hpp"

namespace accel::bigmodel {
namespace {

bool same_time(const timespec& first, const timespec& second) {
  return first.tv_sec == second.tv_sec && first.tv_nsec == second.tv_nsec;
}

}  // namespace

void MappedFiles::add(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return;
  File file{mapped_path(tensor.const_data_ptr()), {}, tensor.const_data_ptr()};
  const auto is_same = [&file](const File& other) { return other.path == file.path; };
  if (file.path.empty() || std::any_of(files_.begin(), files_.end(), is_same)) return;
  if (::stat(file.path.c_str(), &file.opened) == 0) files_.push_back(std::move(file));
}

void MappedFiles::check() const {
  for (const File& file : files_) {
    if (mapped_path(file.address) != file.path) continue;  // its weights were replaced
    struct stat now = {};
    if (::stat(file.path.c_str(), &now) != 0) continue;
    if (now.st_dev != file.opened.st_dev || now.st_ino != file.opened.st_ino) continue;
    require(now.st_size == file.opened.st_size && same_time(now.st_mtim, file.opened.st_mtim), Status::kIo, "'",
            file.path, "' was changed while a model used the weights in it; expected that files which are in use are ",
            "replaced, not changed: load the model again");
  }
}

void watch_mapped_files(nn::Module& model, MappedFiles files) {
  if (files.empty()) return;
  struct Watch {
    explicit Watch(MappedFiles files) : files(std::move(files)) {}
    const MappedFiles files;
    std::mutex mutex;
    std::vector<std::unique_ptr<BusErrorGuard>> lost_pages;  // of the forwards under way, on all threads
  };
  const auto watch = std::make_shared<Watch>(std::move(files));
  model.hooks().add_pre_hook(
      [watch](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
        watch->files.check();
        const std::lock_guard lock(watch->mutex);
        watch->lost_pages.push_back(std::make_unique<BusErrorGuard>());
        return std::nullopt;
      },
      nn::HookOrder::kPlacement);
  model.hooks().add_post_hook(
      [watch](nn::Module&, const nn::Inputs&, const c10::IValue& output) -> std::optional<c10::IValue> {
        const std::lock_guard lock(watch->mutex);
        if (watch->lost_pages.empty()) return std::nullopt;
        const std::unique_ptr<BusErrorGuard> guard = std::move(watch->lost_pages.back());
        watch->lost_pages.pop_back();
        if (!output.isNone()) guard->check();
        return std::nullopt;
      },
      nn::HookOrder::kPlacement, /*after_errors=*/true);
}

}  // namespace accel::bigmodel
