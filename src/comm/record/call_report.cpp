// SPDX-License-Identifier: Apache-2.0
#include "comm/record/call_report.hpp"

#include <map>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.hpp"
#include "comm/record/call_description.hpp"

namespace accel::comm {

std::string report_calls(c10d::Store& store, int rank, int size, const std::vector<int>& job_ranks,
                         const std::string& number, const std::string& call, std::chrono::milliseconds timeout) {
  std::vector<std::string> keys;
  for (int other = 0; other < size; other++) keys.push_back(text("accel/calls/", number, "/", other));
  std::map<std::string, std::vector<int>> ranks_by_call;
  try {
    store.set(keys[rank], call);
    store.wait(keys, timeout);
    for (int other = 0; other < size; other++)
      ranks_by_call[store.get_to_str(keys[other])].push_back(job_ranks.empty() ? other : job_ranks[other]);
  } catch (const std::exception&) {
    return {};  // the transport's own message has to do
  }
  return ranks_by_call.size() == 1 ? std::string() : describe_calls(ranks_by_call);
}

}  // namespace accel::comm
