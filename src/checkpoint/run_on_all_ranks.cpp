// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_on_all_ranks.hpp"

#include <charconv>
#include <string_view>

#include "base/error.hpp"
#include "comm/error_line.hpp"
#include "comm/error_status.hpp"

namespace accel::checkpoint {
namespace {

// Short enough for the report not to allocate.
constexpr const char* kNoMemory = "no memory";

// "<status>\n<text>"
std::string report(Status status, std::string_view text) {
  std::string report = std::to_string(static_cast<int32_t>(status));
  report += '\n';
  report += text;
  return report;
}

}  // namespace

std::string success_report(const std::string& text) { return report(Status::kOk, text); }

std::string failure_report(const std::exception_ptr& failure) noexcept try {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return report(comm::status_of(error), comm::error_line(error));
  } catch (...) {
    return report(Status::kInternal, "an exception of unknown type");
  }
} catch (...) {
  return report(Status::kOutOfMemory, kNoMemory);
}

std::vector<std::string> read_reports(const std::vector<std::string>& reports, const Ranks& ranks) {
  require(reports.size() == static_cast<size_t>(ranks.size), Status::kInternal, "there are reports of ", reports.size(),
          " ranks; expected ", ranks.size);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < reports.size(); rank++) {
    const std::string_view report = reports[rank];
    const size_t line = report.find('\n');
    int32_t status = 0;
    const bool valid = line != std::string_view::npos &&
                       std::from_chars(report.data(), report.data() + line, status).ec == std::errc();
    require(valid, Status::kInternal, "the report of rank ", rank, " cannot be read");
    const std::string text(report.substr(line + 1));
    require(status == 0, static_cast<Status>(status), "rank ", rank, ": ", text);
    const int writer = static_cast<int>(rank) - ranks.first_of_folder;
    if (writer >= 0 && writer < ranks.num_writers()) texts.push_back(text);
  }
  return texts;
}

}  // namespace accel::checkpoint
