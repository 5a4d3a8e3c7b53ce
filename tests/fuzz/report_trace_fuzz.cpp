// Any bytes as a trace: times that are not negative, and a page that a browser can read.
#include "base/error.hpp"
#include "bytes_file.hpp"
#include "report/trace_events.hpp"
#include "report_page.hpp"

using namespace accel::report;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const BytesFile bytes(data, size);
  Run run;
  TraceSummarizer summarizer;
  for (const int64_t rank : {-1, 3})
    summarizer.add("trace", read_trace(bytes.path(), rank, "trace", run.trace_problems));
  run.trace = summarizer.finish();
  for (const OperatorTime& time : run.trace.operators) check(time.self_seconds >= 0 && time.seconds >= 0);
  for (const SpanTime& time : run.trace.spans) check(time.seconds >= 0);
  run.version = run.trace_version = 2;
  check_page_data(run);
  return 0;
}
