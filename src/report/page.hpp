// SPDX-License-Identifier: Apache-2.0
// The page: one HTML file that needs nothing else.
#pragma once

#include <string>

namespace accel::report {

// `data`: of page_data(). `interval`: milliseconds after which the page asks the server from which it comes for more;
// 0: it is a file.
std::string page(const std::string& data, int interval);

// The Content-Security-Policy of the page, which has it as an element; the server sends it as a header too.
std::string content_security_policy(bool is_live);

}  // namespace accel::report
