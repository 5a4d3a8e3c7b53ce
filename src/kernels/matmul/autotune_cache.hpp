// SPDX-License-Identifier: Apache-2.0
// Autotune cache: autotune tables as files in the user's cache folder, so that a machine is measured once for each
// version of LibTorch and number of threads.
#pragma once

#include <optional>
#include <string>

#include "kernels/matmul/autotune_table.hpp"

namespace accel::kernels {

// $XDG_CACHE_HOME/libaccel, else $HOME/.cache/libaccel; nothing when neither is set.
std::optional<std::string> cache_folder();

// Name, family, model and stepping of the processor as /proc/cpuinfo states them; nothing if it does not. The name
// alone is not enough: virtual machines report one name for many processors.
std::optional<std::string> processor_name(const std::string& list = "/proc/cpuinfo");

class AutotuneCache {
 public:
  // `kind` distinguishes tables of one processor.
  AutotuneCache(std::string folder, const std::string& processor, const std::string& libtorch, int threads,
                const std::string& kind = "");
  // The cache of this user and processor; nothing, which is logged, if there is no folder or the processor has no name.
  // Environment variables that limit the instructions of oneDNN or MKL count as another processor.
  static std::optional<AutotuneCache> find(const std::string& libtorch, int threads, const std::string& kind = "",
                                           const std::string& processors = "/proc/cpuinfo");

  const std::string& path() const { return path_; }
  // Nothing if there is no file, or if it is damaged, which is logged. A disturbed table counts for an hour.
  std::optional<AutotuneTable> load() const;
  // Atomic. A failure is logged: the next process measures again. A table is disturbed if other programs used the
  // processors while it was measured: it is stored all the same, so that a run that is resumed has the same kernels.
  void store(const AutotuneTable& table, bool is_disturbed = false) const;

  std::string disturbed_path() const { return path_ + ".disturbed"; }

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace accel::kernels
