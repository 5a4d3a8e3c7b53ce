// SPDX-License-Identifier: Apache-2.0
#include "accelerator/ranks.hpp"

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "comm/collectives.hpp"

namespace accel::accelerator {

checkpoint::Ranks ranks_of(const state::State& state, comm::Communicator& communicator, bool each_host) {
  checkpoint::Ranks ranks;
  if (each_host) {
    ranks.first_of_folder = state.process_index() - state.local_process_index();
    ranks.size_of_folder = state.local_num_processes();
  }
  ranks.rank = communicator.rank();
  ranks.size = communicator.size();
  if (ranks.size == 1) return ranks;
  ranks.all_gather = [&communicator](const std::string& text) {
    const c10::IValue gathered = comm::gather_object(communicator, text);  // a range-for would not keep it alive
    std::vector<std::string> texts;
    for (const c10::IValue& item : gathered.toListRef()) texts.push_back(item.toStringRef());
    return texts;
  };
  return ranks;
}

}  // namespace accel::accelerator
