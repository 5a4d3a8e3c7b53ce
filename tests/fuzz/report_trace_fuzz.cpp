// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace: times that are not negative, and a page that a browser can read.
#include "base/error.hpp"
#include "bytes_file.hpp"
#include "fuzz_target.hpp"
#include "report/trace_events.hpp"
#include "report_page.hpp"

namespace report_trace_fuzz {

using namespace accel::report;

FUZZ_TARGET(report_trace) {
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

}  // namespace report_trace_fuzz
