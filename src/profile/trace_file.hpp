// SPDX-License-Identifier: Apache-2.0
// Files of traces: what Kineto wrote, with our spans and what the rank says of itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"
#include "trace/span.hpp"

namespace accel::profile {

// `of_kineto`: the text of Kineto's trace. `header` becomes the trace's member "accel". The file is replaced as a
// whole; ".gz" at the end of its name compresses it.
void write_trace(std::string_view of_kineto, const Spans::Recording& spans, const Json& header,
                 const std::string& path);

// track::merge_traces(), also to a compressed file.
void merge_traces(const std::vector<std::string>& paths, const std::string& path);

}  // namespace accel::profile
