// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files: replay TARGET FILE_OR_FOLDER... An input that is refused wrongly ends the program.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "fuzz_target.hpp"

#define TARGET(name) FUZZ_TARGET(name);
ACCEL_REPLAYED_TARGETS
#undef TARGET

namespace replay {

using Target = int (*)(const uint8_t* data, size_t size);

struct NamedTarget {
  std::string_view name;
  Target run;
};

#define TARGET(name) {#name, fuzz_##name},
constexpr NamedTarget kTargets[] = {ACCEL_REPLAYED_TARGETS};
#undef TARGET

Target find(std::string_view name) {
  for (const NamedTarget& target : kTargets)
    if (target.name == name) return target.run;
  return nullptr;
}

void run(Target target, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace replay

int main(int argc, char** argv) {
  const replay::Target target = argc > 1 ? replay::find(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: replay TARGET FILE_OR_FOLDER..., with one of");
    for (const replay::NamedTarget& known : replay::kTargets) std::fprintf(stderr, " %s", known.name.data());
    std::fprintf(stderr, "\n");
    return 2;
  }
  int count = 0;
  for (int i = 2; i < argc; i++) {
    if (!std::filesystem::is_directory(argv[i])) {
      replay::run(target, argv[i]);
      count++;
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      replay::run(target, entry.path());
      count++;
    }
  }
  std::printf("%d inputs\n", count);
  return count > 0 ? 0 : 1;
}
