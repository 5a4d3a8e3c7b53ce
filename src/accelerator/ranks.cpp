#include "accelerator/ranks.hpp"

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "comm/collectives.hpp"

namespace accel::accelerator {

checkpoint::Ranks ranks_of(comm::Communicator& communicator) {
  checkpoint::Ranks ranks;
  ranks.rank = communicator.rank();
  ranks.size = communicator.size();
  ranks.size_of_job = ranks.size;
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
