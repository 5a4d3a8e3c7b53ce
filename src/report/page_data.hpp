// SPDX-License-Identifier: Apache-2.0
// Writes the content of the page as JSON: the parts of a report that are newer than a given version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/report.hpp"

namespace accel::report {

// In a page, of all series together; more are reduced, and the page says so.
inline constexpr size_t kMostPointsOfPage = 100000;

// `version`: of the report that has read the runs. `since`: what the page has; 0: nothing.
std::string page_data(const std::vector<const Run*>& runs, uint32_t version, uint32_t since);
std::string page_data(const Report& report, uint32_t since);

}  // namespace accel::report
