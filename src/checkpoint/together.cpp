#include "checkpoint/together.hpp"

#include <c10/util/Exception.h>

#include <charconv>
#include <new>
#include <string_view>

#include "base/error.hpp"

namespace accel::checkpoint {
namespace {

// "<status>\n<text>"
std::string report(Status status, const std::string& text) {
  return std::to_string(static_cast<int32_t>(status)) + "\n" + text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string success_report(const std::string& text) { return report(Status::kOk, text); }

std::string failure_report(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return report(error.status(), error.message());
  } catch (const std::bad_alloc&) {
    return report(Status::kOutOfMemory, "no memory");
  } catch (const c10::Error& error) {
    return report(Status::kTorch, first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return report(Status::kInternal, first_line(error.what()));
  } catch (...) {
    return report(Status::kInternal, "an exception of unknown type");
  }
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
    if (status == 0)
      texts.push_back(text);
    else if (ranks.size == 1)
      fail(static_cast<Status>(status), text);
    else
      fail(static_cast<Status>(status), "rank ", rank, ": ", text);
  }
  return texts;
}

}  // namespace accel::checkpoint
