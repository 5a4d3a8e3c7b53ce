// The measured tables of products, kept in the user's cache folder so that a machine is measured once for each version
// of LibTorch and number of threads.
#pragma once

#include <optional>
#include <string>

#include "kernels/product_table.hpp"

namespace accel::kernels {

// $XDG_CACHE_HOME/libaccel, else $HOME/.cache/libaccel; nothing when neither is set.
std::optional<std::string> cache_folder();

// Name, family, model and stepping of the processor as the system says them; nothing where it does not. A virtual
// machine gives many processors one name.
std::optional<std::string> processor_name(const std::string& list = "/proc/cpuinfo");

class ProductCache {
 public:
  // `kind` tells tables of one processor apart.
  ProductCache(std::string folder, const std::string& processor, const std::string& libtorch, int threads,
               const std::string& kind = "");
  // That of this user and processor; nothing, which is logged, where there is no folder or the processor has no name.
  // What limits the instructions of oneDNN and MKL makes another processor of it.
  static std::optional<ProductCache> find(const std::string& libtorch, int threads, const std::string& kind = "",
                                          const std::string& processors = "/proc/cpuinfo");

  const std::string& path() const { return path_; }
  // Nothing when there is no file, and when it is damaged, which is logged.
  std::optional<ProductTable> load() const;
  // Whole or not at all. Logged when it fails: the table is measured again the next time.
  void store(const ProductTable& table) const;

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace accel::kernels
