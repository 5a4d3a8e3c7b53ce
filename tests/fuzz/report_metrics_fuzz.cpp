// SPDX-License-Identifier: Apache-2.0
// Any bytes as the metrics of a run: values and problems, and a page that a browser can read.
#include "bytes_file.hpp"
#include "fuzz_target.hpp"
#include "report/line_file.hpp"
#include "report/metrics_reader.hpp"
#include "report_page.hpp"

namespace report_metrics_fuzz {

using namespace accel::report;

FUZZ_TARGET(report_metrics) {
  const BytesFile bytes(data, size);
  Run run;
  run.version = 2;
  MetricsReader reader(run, 1000);
  LineFile file(bytes.path());
  file.read([&reader](const std::string_view* line, int64_t number) { reader.take(line, number, 1 + number % 2); });
  file.take_rest([&reader](const std::string_view* line, int64_t number) { reader.take_cut_off(line, number, 2); });
  check_page_data(run);
  return 0;
}

}  // namespace report_metrics_fuzz
