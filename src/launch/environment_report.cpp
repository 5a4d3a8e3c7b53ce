// SPDX-License-Identifier: Apache-2.0
#include "launch/environment_report.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/built_for.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "config/launch_configuration.hpp"
#include "launch/command_output.hpp"
#include "launch/nvidia_gpus.hpp"
#include "machine/host_memory.hpp"
#include "machine/nvidia_driver.hpp"
#include "machine/processor_affinity.hpp"
#include "machine/processors.hpp"
#include "machine/visible_gpus.hpp"
#include "os/list_folder.hpp"
#include "os/plugin_file.hpp"
#include "os/read_line.hpp"

namespace accel::launch {
namespace {

constexpr Deadline::Milliseconds kMostOfAQuestion(5000);

// The text after `key` in a file of lines `key separator text`; empty if there is none.
std::string field_of(const std::string& file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; stream && read_line(stream, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of("\t :=\"", key.size());
    const size_t end = line.find_last_not_of("\" ");
    if (begin != std::string::npos) return line.substr(begin, end - begin + 1);
  }
  return "";
}

std::string first_line_of(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  if (!stream || !read_line(stream, line)) return "";
  return line;
}

void add(Json::Members& members, const char* name, const std::string& value) {
  if (!value.empty()) members.emplace_back(name, Json(value));
}
void add(Json::Members& members, const char* name, int64_t value) { members.emplace_back(name, Json::number(value)); }

Json system_of() {
  utsname system = {};
  uname(&system);
  Json::Members members;
  add(members, "name", field_of("/etc/os-release", "PRETTY_NAME"));
  add(members, "kernel", std::string(system.release));
  add(members, "machine", std::string(system.machine));
  const bool is_container = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
                            environment_text("KUBERNETES_SERVICE_HOST").has_value();
  members.emplace_back("container", Json(is_container));
  return Json(std::move(members));
}

// The instruction sets that decide how fast tensors are computed.
std::string instructions() {
  constexpr std::string_view kOfInterest[] = {"avx2",        "fma",      "avx512f",  "avx512_bf16", "avx512_fp16",
                                              "avx512_vnni", "amx_bf16", "amx_int8", "asimd",       "sve",
                                              "sve2",        "bf16",     "i8mm"};
  std::string flags = field_of("/proc/cpuinfo", "flags");
  if (flags.empty()) flags = field_of("/proc/cpuinfo", "Features");
  const std::vector<std::string> there = split_text(flags, ' ');
  std::string found;
  for (const std::string_view one : kOfInterest)
    if (std::find(there.begin(), there.end(), one) != there.end())
      found += (found.empty() ? "" : " ") + std::string(one);
  return found;
}

Json processor_of() {
  std::set<int> nodes;
  for (const Processor& processor : processor_topology()) nodes.insert(processor.node);
  Json::Members members;
  add(members, "model", field_of("/proc/cpuinfo", "model name"));
  add(members, "usable", int64_t{usable_processors()});
  add(members, "online", static_cast<int64_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  add(members, "cores", int64_t{usable_cores()});
  add(members, "memory_nodes", static_cast<int64_t>(nodes.size()));
  add(members, "instructions", instructions());
  const std::string bfloat16 = bfloat16_instructions();
  add(members, "bf16", bfloat16.empty() ? "none, bf16 is emulated in float32" : bfloat16);
  return Json(std::move(members));
}

Json memory_of() {
  Json::Members members;
  add(members, "total", field_of("/proc/meminfo", "MemTotal"));
  add(members, "available_bytes", available_host_memory());
  struct statvfs shared = {};
  if (statvfs("/dev/shm", &shared) == 0) {
    add(members, "shared_bytes", static_cast<int64_t>(shared.f_blocks * shared.f_frsize));
    add(members, "shared_free_bytes", static_cast<int64_t>(shared.f_bavail * shared.f_frsize));
  }
  return Json(std::move(members));
}

Json limits_of() {
  struct Limit {
    const char* name;
    decltype(RLIMIT_NOFILE) resource;
  };
  constexpr Limit kLimits[] = {{"open_files", RLIMIT_NOFILE},     {"processes", RLIMIT_NPROC},
                               {"locked_memory", RLIMIT_MEMLOCK}, {"address_space", RLIMIT_AS},
                               {"stack", RLIMIT_STACK},           {"core_file", RLIMIT_CORE}};
  Json::Members members;
  for (const Limit& limit : kLimits) {
    rlimit found = {};
    if (getrlimit(limit.resource, &found) != 0) continue;
    members.emplace_back(limit.name, found.rlim_cur == RLIM_INFINITY
                                         ? Json("unlimited")
                                         : Json::number(static_cast<int64_t>(found.rlim_cur)));
  }
  for (const auto& [name, file] :
       {std::pair("cgroup_memory", "/sys/fs/cgroup/memory.max"), std::pair("cgroup_cpu", "/sys/fs/cgroup/cpu.max"),
        std::pair("cgroup_processes", "/sys/fs/cgroup/pids.max")})
    add(members, name, first_line_of(file));
  return Json(std::move(members));
}

Json devices_of() {
  Json::Members members;
  members.emplace_back("nvidia", nvidia_gpus());
  add(members, "nvidia_driver", first_line_of("/proc/driver/nvidia/version"));
  members.emplace_back("nvidia_peer_copies", Json(driver_without_peer_copies().empty()));
  const std::string visible = visible_gpu_ids();
  add(members, "nvidia_visible", visible.empty() ? "none" : visible);
  if (is_folder("/sys/class/kfd/kfd/topology/nodes"))
    add(members, "amd_nodes", static_cast<int64_t>(list_folder("/sys/class/kfd/kfd/topology/nodes").size()));
  if (is_folder("/sys/class/infiniband")) {
    Json::Items links;
    for (const std::string& link : list_folder("/sys/class/infiniband")) links.emplace_back(link);
    members.emplace_back("infiniband", Json(std::move(links)));
  }
  return Json(std::move(members));
}

// Where the linker finds libraries, as far as folders are concerned.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders = split_text(environment_text("LD_LIBRARY_PATH").value_or(""), ':');
  for (const char* const folder : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                   "/usr/lib64", "/usr/lib", "/usr/local/cuda/lib64", "/opt/ucx/lib"})
    folders.emplace_back(folder);
  return folders;
}

// The file that a library's name leads to, whose end is its version.
std::string library_file(const char* name) {
  std::error_code error;
  for (const std::string& folder : library_folders()) {
    const std::filesystem::path path = std::filesystem::canonical(folder + '/' + name, error);
    if (!error) return path.string();
  }
  return "";
}

Json ucx_of() {
  Json::Members members;
  add(members, "library", library_file("libucp.so.0"));
  if (const auto said = command_output({"ucx_info", "-v"}, Deadline(kMostOfAQuestion))) {
    std::istringstream lines(*said);
    std::string line;
    if (read_line(lines, line))
      add(members, "version", line.substr(std::min(line.find_first_not_of("# "), line.size())));
  }
  if (const auto said = command_output({"ucx_info", "-d"}, Deadline(kMostOfAQuestion))) {
    std::set<std::string> names;
    std::istringstream lines(*said);
    for (std::string line; read_line(lines, line);)
      if (const size_t at = line.find("Transport: "); at != std::string::npos) names.insert(line.substr(at + 11));
    Json::Items transports;
    for (const std::string& name : names) transports.emplace_back(name);
    members.emplace_back("transports", Json(std::move(transports)));
  }
  return Json(std::move(members));
}

// Versions from the metadata of packages: torch itself would take seconds to import. -I: nothing of the current folder
// is executed.
Json python_of() {
  constexpr const char* kQuestion =
      "import importlib.metadata as m, json, os, platform, sys\n"
      "sys.path += os.environ.get('PYTHONPATH', '').split(':')\n"
      "def version(name):\n"
      "    try: return m.version(name)\n"
      "    except m.PackageNotFoundError: return None\n"
      "names = ('torch', 'accelerate', 'accel', 'transformers', 'numpy', 'safetensors', 'nvidia-nccl-cu12', "
      "'nvidia-nccl-cu13', 'deepspeed')\n"
      "found = {'program': sys.executable, 'version': platform.python_version()}\n"
      "found.update({name: version(name) for name in names if version(name)})\n"
      "print(json.dumps(found))\n";
  const auto said = command_output({"python3", "-I", "-c", kQuestion}, Deadline(kMostOfAQuestion));
  if (!said) return Json(Json::Members());
  try {
    return parse_json(*said, "python3");
  } catch (const Error&) {
    return Json(Json::Members());
  }
}

bool is_of_interest(std::string_view variable) {
  constexpr std::string_view kPrefixes[] = {"ACCELERATE_", "ACCEL_",
                                            "FSDP_",       "PARALLELISM_CONFIG_",
                                            "CUDA_",       "OMP_",
                                            "KMP_",        "GOMP_",
                                            "UCX_",        "NCCL_",
                                            "ONEDNN_",     "DNNL_",
                                            "MKL_",        "MASTER_",
                                            "RANK=",       "WORLD_SIZE=",
                                            "LOCAL_",      "TORCH",
                                            "LIBTORCH=",   "OMPI_COMM_",
                                            "PMI_",        "MV2_",
                                            "SLURM_",      "HF_",
                                            "PYTHONPATH=", "LD_LIBRARY_PATH=",
                                            "LD_PRELOAD=", "JOB_COMPLETION_INDEX="};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return variable.substr(0, prefix.size()) == prefix; });
}

Json variables_of_interest() {
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (is_of_interest(*variable)) found.emplace_back(*variable);
  std::sort(found.begin(), found.end());
  Json::Members members;
  for (const std::string& variable : found) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    members.emplace_back(name, Json(masked_value(name, variable.substr(equals + 1))));
  }
  return Json(std::move(members));
}

Json masked(const std::string& name, const Json& value) {
  if (value.members() == nullptr)
    return value.is_null() || value.text() == nullptr ? value : Json(masked_value(name, *value.text()));
  Json::Members members;
  for (const auto& [inner, one] : *value.members()) members.emplace_back(inner, masked(inner, one));
  return Json(std::move(members));
}

// A file that cannot be read is part of the report, not the end of it.
Json configuration_of(const std::string& given) {
  Json::Members members;
  const std::string path = given.empty() ? default_configuration_path() : given;
  if (given.empty() && access(path.c_str(), F_OK) != 0) return Json(std::move(members));
  add(members, "file", path);
  try {
    members.emplace_back("values", masked("", json_of(read_launch_configuration(path))));
  } catch (const Error& error) {
    add(members, "error", error.message());
  }
  return Json(std::move(members));
}

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

// The version of a folder with LibTorch, as bin/accel-libtorch and the Python package torch write it.
std::string libtorch_version_in(const std::filesystem::path& folder) {
  const std::string fetched = first_line_of(folder / "fetched");
  const std::string version = fetched.empty() ? field_of(folder / "version.py", "__version__") : fetched;
  const size_t begin = version.find_first_of("0123456789");
  return begin == std::string::npos ? ""
                                    : version.substr(begin, version.find_first_not_of("0123456789.", begin) - begin);
}

// libaccel.so beside this program: in lib of an installation or archive, in a Python package, in a build folder.
std::string own_library() {
  const std::filesystem::path folder = std::filesystem::path(own_path()).parent_path();
  const std::filesystem::path above = folder.parent_path();
  for (const std::filesystem::path& place : {above / "lib", above / kLibraryFolder, above, folder}) {
    const std::filesystem::path file = place / kLibraryFile;
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return "";
}

// The files of the plugins that libaccel.so beside this program finds.
Json plugins_of() {
  Json::Members members;
  for (const auto& [name, path] : plugin_paths(std::filesystem::path(own_library()).parent_path()))
    members.emplace_back(name, Json(path));
  return Json(std::move(members));
}

// The folder of the LibTorch that the dynamic linker finds for the library beside this program, by LD_LIBRARY_PATH, the
// library's own folders or the system's; empty if it finds none. The linker lists it: nothing is loaded.
std::filesystem::path linked_libtorch() {
  const std::string library = own_library();
  Dl_info linker;
  if (library.empty() || dladdr(reinterpret_cast<const void*>(getauxval(AT_BASE)), &linker) == 0) return {};
  const auto said = command_output({linker.dli_fname, "--list", library}, Deadline(kMostOfAQuestion));
  if (!said) return {};
  std::istringstream lines(*said);
  constexpr std::string_view kArrow = "libtorch_cpu.so => /";
  for (std::string line; read_line(lines, line);) {
    const size_t begin = line.find(kArrow), end = line.rfind(" (");
    if (begin == std::string::npos || end == std::string::npos) continue;
    const size_t path = begin + kArrow.size() - 1;
    return std::filesystem::path(line.substr(path, end - path)).parent_path().parent_path();
  }
  return {};
}

// Where libaccel.so beside this program looks: $ACCEL_LIBTORCH, which languages heed, what the linker finds, lib/torch
// of an archive, the package torch beside the package accel.
Json libtorch_of() {
  Json::Members members;
  add(members, "expected", kTorchVersion);
  const std::filesystem::path prefix = std::filesystem::path(own_path()).parent_path().parent_path();
  for (const std::filesystem::path& folder :
       {std::filesystem::path(environment_text("ACCEL_LIBTORCH").value_or("")), linked_libtorch(),
        prefix / "lib" / "torch", prefix.parent_path() / "torch"}) {
    if (folder.empty() || access((folder / "lib" / "libtorch_cpu.so").c_str(), R_OK) != 0) continue;
    add(members, "folder", folder);
    const std::string version = libtorch_version_in(folder);
    add(members, "version", version);
    if (version.empty() || version == kTorchVersion) return Json(std::move(members));
    add(members, "problem",
        text("libaccel needs ", kTorchVersion,
             ": remove that one and run `accel-libtorch`, or `pip install torch==", kTorchVersion, "`"));
    return Json(std::move(members));
  }
  add(members, "problem",
      text("none beside this program: run `accel-libtorch`, or `pip install torch==", kTorchVersion, "`"));
  return Json(std::move(members));
}

}  // namespace

std::string masked_value(const std::string& name, const std::string& value) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const char* const word : {"TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL"})
    if (upper.find(word) != std::string::npos) return "***";
  return value;
}

Json environment_report(const std::string& configuration) {
  Json::Members report;
  add(report, "program", own_path());
  report.emplace_back("system", system_of());
  report.emplace_back("processor", processor_of());
  report.emplace_back("memory", memory_of());
  report.emplace_back("limits", limits_of());
  report.emplace_back("devices", devices_of());
  report.emplace_back("ucx", ucx_of());
  add(report, "nccl", library_file("libnccl.so.2"));
  report.emplace_back("plugins", plugins_of());
  report.emplace_back("libtorch", libtorch_of());
  report.emplace_back("python", python_of());
  report.emplace_back("configuration", configuration_of(configuration));
  report.emplace_back("variables", variables_of_interest());
  return Json(std::move(report));
}

std::string environment_report_json() { return print_json(environment_report()); }

}  // namespace accel::launch
