// The options of a save.
#pragma once

#include <cstdint>
#include <string>

namespace accel::checkpoint {

struct SaveOptions {
  bool safe_serialization = true;  // models as safetensors; otherwise as torch.save() writes them
  int compression_level = 0;       // of Zstd, for models and optimizers; 0: not compressed
  bool save_on_each_node = false;  // each host has a folder of its own
  bool durable = true;             // the files are on the disk before the folder has its name
  bool may_replace = true;         // an older checkpoint of that name
  // Files that are as in `previous`, a former checkpoint if there is one, are shared with it instead of written. The
  // frozen parameters of a model are in a file of their own.
  bool incremental = false;
  std::string previous;
  // For the manifest.
  std::string library;  // the version
  std::string mesh;
  int64_t iteration = 0;
};

}  // namespace accel::checkpoint
