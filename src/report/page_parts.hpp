// The parts of the page that do not depend on what it shows; embed_page.py writes them from page.html, page.css and the
// scripts.
#pragma once

#include <string_view>

namespace accel::report {

extern const std::string_view kPageHtml;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;
// As a Content-Security-Policy names them: "sha256-...".
extern const std::string_view kPageStyleHash;
extern const std::string_view kPageScriptHash;

}  // namespace accel::report
