// The page: one HTML file that needs nothing else.
#pragma once

#include <string>

namespace accel::report {

// `data`: of page_data(). `interval`: milliseconds after which the page asks the server from which it comes for more;
// 0: it is a file.
std::string page(const std::string& data, int interval);

// What the server says beside the page: the same that the page says itself, which a header can say more of.
std::string content_security_policy(bool is_live);

}  // namespace accel::report
