// SPDX-License-Identifier: Apache-2.0
// The parts of the page that do not depend on what it shows; embed_page.py writes them from page.html, page.css and the
// scripts.
#pragma once

#include <string_view>

namespace accel::report {

struct PageParts {
  std::string_view html, style, script;
  // Hashes in the form of a Content-Security-Policy: "sha256-...".
  std::string_view style_hash, script_hash;
};

PageParts page_parts();

}  // namespace accel::report
