// SPDX-License-Identifier: Apache-2.0
#include "report/report.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace accel::report {
namespace {

std::string canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(path, error);
  return error ? path : found.string();
}

// Changes when one of the files does.
std::string state_of(const std::vector<TraceFile>& traces) {
  std::string state;
  for (const TraceFile& trace : traces) {
    struct stat found {};
    if (::stat(trace.path.c_str(), &found) == 0)
      state += text(trace.path, ' ', found.st_size, ' ', found.st_mtim.tv_sec, '.', found.st_mtim.tv_nsec, '\n');
  }
  return state;
}

}  // namespace

Report::Source::Source(RunFolder found, uint32_t id, uint32_t version, size_t most_points)
    : folder(std::move(found)), metrics(folder.path + "/" + kMetricsFile), reader(run, most_points) {
  run.id = id;
  run.version = version;
  run.folder = folder.path;
}

Report::Report(std::vector<std::string> folders, bool is_live) : folders_(std::move(folders)), is_live_(is_live) {
  find_runs();
}

bool Report::find_runs() {
  std::vector<std::pair<std::string, RunFolder>> added;
  for (const std::string& folder : folders_)
    for (RunFolder& found : find_run_folders(folder)) {
      std::string path = canonical(found.path);
      if (const auto known = sources_.find(path); known != sources_.end())
        known->second->folder = std::move(found);
      else
        added.emplace_back(std::move(path), std::move(found));
    }
  for (auto& [path, found] : added) {
    const size_t most_points = kMostPointsInMemory / (sources_.size() + added.size());
    const auto [source, is_new] = sources_.try_emplace(path);
    if (!is_new) continue;
    source->second = std::make_unique<Source>(std::move(found), ++last_id_, version_ + 1, most_points);
    order_.push_back(path);
  }
  if (!added.empty()) name_runs();
  return !added.empty();
}

void Report::name_runs() {
  const std::vector<std::string> names = distinct_names(order_);
  for (size_t i = 0; i < order_.size(); ++i) sources_.at(order_[i])->run.name = names[i];
}

void Report::update() {
  bool has_news = version_ == 0;
  try {
    if (version_ > 0) has_news = find_runs();
  } catch (const Error&) {
    // The folder is away for now: what has been read stays.
  }
  const uint32_t version = version_ + 1;
  for (auto& [path, source] : sources_) {
    has_news |= read_metrics(source, version);
    has_news |= read_traces(*source, version);
  }
  if (has_news) version_ = version;
}

bool Report::read_metrics(std::unique_ptr<Source>& source, uint32_t version) {
  if (!source->folder.has_metrics) return false;
  const auto take = [&](const std::string_view* line, int64_t number) { source->reader.take(line, number, version); };
  try {
    const LineFile::Progress progress = source->metrics.read(take);
    if (progress == LineFile::Progress::kReplaced) {
      const std::string name = source->run.name;
      source = std::make_unique<Source>(source->folder, ++last_id_, version, kMostPointsInMemory / sources_.size());
      source->run.name = name;
      source->metrics.read(take);
    }
    source->failure.clear();
    return progress != LineFile::Progress::kNone;
  } catch (const Error& error) {
    if (source->failure == error.message()) return false;
    source->failure = error.message();
    source->run.problems.add(kMetricsFile, "failures to read it", error.message());
    source->run.version = version;
    return true;
  }
}

// A trace is written in one go: while it grows, it is left for the next look.
bool Report::read_traces(Source& source, uint32_t version) {
  const std::string state = state_of(source.folder.traces);
  const bool is_growing = is_live_ && source.seen_trace_state != state;
  source.seen_trace_state = state;
  if (is_growing || state == source.trace_state) return false;
  source.trace_state = state;
  TraceSummarizer summarizer;
  Problems problems;
  for (const TraceFile& trace : source.folder.traces) {
    try {
      summarizer.add(trace.name, read_trace(trace.path, trace.rank, trace.name, problems));
    } catch (const Error& error) {
      problems.add(trace.name, "failures to read it", error.message());
    }
  }
  source.run.trace = summarizer.finish();
  source.run.trace_problems = std::move(problems);
  source.run.trace_version = source.run.version = version;
  return true;
}

void Report::finish() {
  for (auto& [path, source] : sources_) {
    Source& one = *source;
    one.metrics.take_rest([&one, this](const std::string_view* line, int64_t number) {
      one.reader.take_cut_off(line, number, version_);
    });
  }
}

std::vector<const Run*> Report::runs() const {
  std::vector<const Run*> runs;
  for (const std::string& path : order_) runs.push_back(&sources_.at(path)->run);
  return runs;
}

}  // namespace accel::report
