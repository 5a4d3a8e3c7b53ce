// SPDX-License-Identifier: Apache-2.0
#include "profile/trace_file.hpp"

#include <libdeflate.h>
#include <unistd.h>

#include <memory>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "os/mapped_file.hpp"
#include "os/replaced_file.hpp"
#include "trace/span_events.hpp"
#include "trace/trace_merge.hpp"

namespace accel::profile {
namespace {

bool is_compressed(const std::string& path) { return path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0; }

std::string gzip(std::string_view text) {
  constexpr int kLevel = 6;
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(kLevel), &libdeflate_free_compressor);
  if (!compressor) throw std::bad_alloc();
  std::string compressed(libdeflate_gzip_compress_bound(compressor.get(), text.size()), '\0');
  compressed.resize(
      libdeflate_gzip_compress(compressor.get(), text.data(), text.size(), compressed.data(), compressed.size()));
  return compressed;
}

// Kineto's trace in parts: {head "traceEvents": [ events ] tail}.
struct KinetoParts {
  std::string_view head, events;
  int64_t base = 0;
};

KinetoParts split(std::string_view trace) {
  constexpr std::string_view kEvents = "\"traceEvents\":", kBase = "\"baseTimeNanoseconds\":", kDigits = "0123456789";
  const size_t key = trace.find(kEvents), begin = trace.find('[', key), end = trace.rfind(']');
  const size_t base = trace.substr(0, key).find(kBase);
  require(
      key != std::string_view::npos && begin < end && end != std::string_view::npos && base != std::string_view::npos,
      Status::kUnsupported, "the trace of this LibTorch has another form; expected traceEvents");
  KinetoParts parts{trace.substr(0, key), trace.substr(begin + 1, end - begin - 1), 0};
  const size_t digits = trace.find_first_of(kDigits, base);
  const size_t behind = trace.find_first_not_of(kDigits, digits);
  parts.base = parse_integer(std::string(trace.substr(digits, behind - digits))).value_or(0);
  return parts;
}

}  // namespace

void write_trace(std::string_view of_kineto, const Spans::Recording& spans, const Json& header,
                 const std::string& path) {
  const KinetoParts parts = split(of_kineto);
  std::string head(parts.head);
  head += text("\"accel\":", print_json(header), ",\n\"traceEvents\":[\n");
  std::string events = track::span_events(spans, parts.base, getpid());
  const bool is_last = parts.events.find_first_not_of(" \n\t\r") == std::string_view::npos;
  if (is_last && !events.empty()) events.erase(events.rfind(','));
  constexpr std::string_view kTail = "\n]}\n";
  ReplacedFile file(path);
  if (is_compressed(path)) {
    file.write(gzip((head += events).append(parts.events).append(kTail)));
  } else {
    for (const std::string_view part : {std::string_view(head), std::string_view(events), parts.events, kTail})
      file.write(part);
  }
  file.commit();
}

void merge_traces(const std::vector<std::string>& paths, const std::string& path) {
  if (!is_compressed(path)) return track::merge_traces(paths, path);
  const std::string plain = path + ".plain";
  const std::unique_ptr<const std::string, void (*)(const std::string*)> removed(
      &plain, [](const std::string* file) { ::unlink(file->c_str()); });
  track::merge_traces(paths, plain);
  ReplacedFile file(path);
  file.write(gzip(MappedFile(plain).text()));
  file.commit();
}

}  // namespace accel::profile
