// SPDX-License-Identifier: Apache-2.0
#include "report/run_folders.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "os/list_folder.hpp"
#include "report/metrics_reader.hpp"

namespace accel::report {
namespace {

constexpr int kDeepestFolder = 8;
constexpr size_t kMostFolders = 20000;
constexpr const char* kMergedTrace = "profile_merged.json";

bool is_folder_itself(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// "profile_3.json": 3. Anything else: -1.
int64_t rank_of_trace(std::string_view name) {
  constexpr std::string_view kBegin = "profile_", kEnd = ".json";
  if (name.size() <= kBegin.size() + kEnd.size() || name.substr(0, kBegin.size()) != kBegin ||
      name.substr(name.size() - kEnd.size()) != kEnd)
    return -1;
  const std::string_view digits = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  int64_t rank = -1;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? rank : -1;
}

class FolderSearch {
 public:
  void visit(const std::string& path, RunFolder* outer, int depth) {
    if (++num_folders_ > kMostFolders) return;
    std::vector<std::string> names;
    try {
      names = list_folder(path);
    } catch (const Error&) {
      if (depth == 0) throw;
      return;
    }
    std::sort(names.begin(), names.end());
    RunFolder here{path, std::binary_search(names.begin(), names.end(), kMetricsFile), {}};
    RunFolder* const run = here.has_metrics || outer == nullptr ? &here : outer;
    for (const std::string& name : names) {
      const std::string file = path + "/" + name;
      if (const int64_t rank = rank_of_trace(name); rank >= 0 || name == kMergedTrace)
        run->traces.push_back({file, file.substr(run->path.size() + 1), rank});
    }
    const bool is_run = here.has_metrics || (outer == nullptr && !here.traces.empty());
    if (depth < kDeepestFolder)
      for (const std::string& name : names)
        if (const std::string inner = path + "/" + name; is_folder_itself(inner))
          visit(inner, is_run ? &here : outer, depth + 1);
    if (is_run) found_.push_back(std::move(here));
  }

  std::vector<RunFolder> take() { return std::move(found_); }

 private:
  std::vector<RunFolder> found_;
  size_t num_folders_ = 0;
};

// A merged trace has what the others of its folder have.
void prefer_merged(std::vector<TraceFile>& traces) {
  std::set<std::string> merged;
  const auto folder_of = [](const TraceFile& trace) { return trace.path.substr(0, trace.path.rfind('/')); };
  for (const TraceFile& trace : traces)
    if (trace.rank < 0) merged.insert(folder_of(trace));
  const auto is_in_merged = [&](const TraceFile& trace) {
    return trace.rank >= 0 && merged.count(folder_of(trace)) != 0;
  };
  traces.erase(std::remove_if(traces.begin(), traces.end(), is_in_merged), traces.end());
}

// The last `count` parts.
std::string end_of(const std::string& path, size_t count) {
  size_t begin = path.size();
  for (size_t i = 0; i < count && begin > 0 && begin != std::string::npos; ++i) begin = path.rfind('/', begin - 1);
  const std::string end = begin == std::string::npos ? path : path.substr(begin + 1);
  return end.empty() ? path : end;
}

}  // namespace

std::vector<RunFolder> find_run_folders(const std::string& folder) {
  require(is_folder(folder), Status::kNotFound, "'", folder,
          "' is not a folder; expected the folder of a run, or one above it");
  FolderSearch search;
  search.visit(folder, nullptr, 0);
  std::vector<RunFolder> found = search.take();
  for (RunFolder& run : found) prefer_merged(run.traces);
  std::sort(found.begin(), found.end(),
            [](const RunFolder& one, const RunFolder& other) { return one.path < other.path; });
  return found;
}

std::vector<std::string> distinct_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names(paths.size());
  std::vector<size_t> counts(paths.size(), 1);
  for (bool changed = true; changed;) {
    changed = false;
    std::map<std::string, size_t> users;
    for (size_t i = 0; i < paths.size(); ++i) ++users[names[i] = end_of(paths[i], counts[i])];
    for (size_t i = 0; i < paths.size(); ++i) {
      if (users[names[i]] < 2 || names[i] == paths[i]) continue;
      ++counts[i];
      changed = true;
    }
  }
  return names;
}

}  // namespace accel::report
