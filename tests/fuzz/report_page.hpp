// SPDX-License-Identifier: Apache-2.0
// The data of a page with one run, as a browser must be able to read it.
#pragma once

#include <string>

#include "bytes_file.hpp"
#include "json/json.hpp"
#include "report/page_data.hpp"

inline void check_page_data(const accel::report::Run& run) {
  for (const uint32_t since : {0U, 1U}) {
    const std::string data = accel::report::page_data({&run}, 2, since);
    check(data.find_first_of("<>&") == std::string::npos);
    accel::parse_json(data, "data");
  }
}
