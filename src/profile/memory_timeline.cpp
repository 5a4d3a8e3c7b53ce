// SPDX-License-Identifier: Apache-2.0
#include "profile/memory_timeline.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tensor/tree.hpp"

namespace accel::profile {

c10::IValue memory_timeline(const KinetoTrace& trace, int64_t begun) {
  std::vector<KinetoEvent> changes;
  trace.for_each_event([&](const KinetoEvent& event) {
    if (event.kind == KinetoEvent::Kind::kMemory) changes.push_back(event);
  });
  std::stable_sort(changes.begin(), changes.end(),
                   [](const KinetoEvent& one, const KinetoEvent& other) { return one.begun < other.begun; });
  std::map<std::string, int64_t> totals;
  auto list = tree::new_list();
  for (const KinetoEvent& change : changes) {
    std::string device = c10::DeviceTypeName(change.device, /*lower_case=*/true);
    if (change.device != c10::DeviceType::CPU) device += ":" + std::to_string(change.device_index);
    const int64_t total = totals[device] += change.bytes;
    auto map = tree::new_map();
    map.insert("time_us", static_cast<double>(change.begun - begun) / 1000);
    map.insert("device", device);
    map.insert("bytes", change.bytes);
    map.insert("total", total);
    list.push_back(map);
  }
  return list;
}

}  // namespace accel::profile
