#include "program/environment_report.hpp"

#include <dirent.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/processors.hpp"
#include "base/read_line.hpp"

namespace accel::program {
namespace {

// The text after `key` in a file of lines `key separator text`, or "unknown".
std::string field(const char* file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; read_line(stream, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of("\t :=\"", key.size());
    const size_t end = line.find_last_not_of("\" ");
    if (begin != std::string::npos) return line.substr(begin, end - begin + 1);
  }
  return "unknown";
}

int count_entries(const char* folder) {
  DIR* const opened = opendir(folder);
  if (opened == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(opened)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(opened);
  return count;
}

bool is_of_interest(std::string_view variable) {
  constexpr std::string_view kPrefixes[] = {"ACCELERATE_", "ACCEL_",      "FSDP_",  "PARALLELISM_CONFIG_",
                                            "CUDA_",       "OMP_",        "UCX_",   "NCCL_",
                                            "ONEDNN_",     "DNNL_",       "MKL_",   "MASTER_",
                                            "RANK=",       "WORLD_SIZE=", "LOCAL_", "TORCH_",
                                            "LIBTORCH=",   "OMPI_COMM_",  "PMI_",   "MV2_",
                                            "SLURM_PROCID"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return variable.substr(0, prefix.size()) == prefix; });
}

}  // namespace

std::string environment_report() {
  std::ostringstream report;
  utsname system = {};
  uname(&system);
  const std::string bfloat16 = bfloat16_instructions();
  report << "accel               " << ACCEL_VERSION << '\n'
         << "system              " << field("/etc/os-release", "PRETTY_NAME") << ", Linux " << system.release << ", "
         << system.machine << '\n'
         << "processor           " << field("/proc/cpuinfo", "model name") << '\n'
         << "processors          " << usable_processors() << " usable of " << sysconf(_SC_NPROCESSORS_ONLN) << '\n'
         << "bf16 instructions   "
         << (bfloat16.empty() ? "none, bf16 is emulated in float32" : "yes (" + bfloat16 + ")") << '\n'
         << "memory              " << field("/proc/meminfo", "MemAvailable") << " available of "
         << field("/proc/meminfo", "MemTotal") << '\n'
         << "NVIDIA GPUs         " << count_entries("/proc/driver/nvidia/gpus") << '\n';
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (is_of_interest(*variable)) variables.emplace_back(*variable);
  }
  std::sort(variables.begin(), variables.end());
  for (const std::string& variable : variables) report << variable << '\n';
  return report.str();
}

}  // namespace accel::program
