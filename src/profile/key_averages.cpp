// SPDX-License-Identifier: Apache-2.0
#include "profile/key_averages.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/tree.hpp"

namespace accel::profile {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

struct Sum {
  int64_t count = 0, self_memory = 0, flops = 0, bytes = 0;
  double self = 0, total = 0, device = 0;  // nanoseconds
};
using Key = std::tuple<std::string, std::string, Shapes>;  // kind, name, shapes
using Sums = std::map<Key, Sum>;

// One operator that runs, or an allocation (without a sum), in the order in which they began.
struct Moment {
  int64_t begun, ended;
  Sum* sum;
  int64_t bytes;
};

// A thread's operators are nested: the innermost one that runs has the time and the memory.
void add_thread(std::vector<Moment>& moments) {
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& one, const Moment& other) {
    return std::make_pair(one.begun, other.ended) < std::make_pair(other.begun, one.ended);
  });
  std::vector<const Moment*> running;
  for (const Moment& moment : moments) {
    while (!running.empty() && running.back()->ended <= moment.begun && running.back()->ended < moment.ended)
      running.pop_back();
    if (moment.sum == nullptr) {
      while (!running.empty() && running.back()->ended < moment.begun) running.pop_back();
      if (!running.empty()) running.back()->sum->self_memory += moment.bytes;
      continue;
    }
    const auto took = static_cast<double>(moment.ended - moment.begun);
    const bool is_inside_itself =
        std::any_of(running.begin(), running.end(), [&](const Moment* outer) { return outer->sum == moment.sum; });
    moment.sum->self += took;
    if (!is_inside_itself) moment.sum->total += took;
    if (!running.empty())
      running.back()->sum->self -= std::min(took, static_cast<double>(running.back()->ended - moment.begun));
    running.push_back(&moment);
  }
}

c10::IValue describe(const Key& key, const Sum& sum, bool has_shapes) {
  constexpr double kNanosecondsOfOne = 1000;
  const auto& [kind, name, shapes] = key;
  auto map = tree::new_map();
  map.insert("name", name);
  map.insert("kind", kind);
  map.insert("count", sum.count);
  map.insert("self_cpu_us", std::max(sum.self, 0.0) / kNanosecondsOfOne);
  map.insert("cpu_us", sum.total / kNanosecondsOfOne);
  map.insert("device_us", sum.device / kNanosecondsOfOne);
  map.insert("self_cpu_memory", sum.self_memory);
  map.insert("flops", sum.flops);
  map.insert("bytes", sum.bytes);
  if (!has_shapes) return map;
  auto list = tree::new_list();
  for (const auto& shape : shapes) list.push_back(tree::new_list({shape.begin(), shape.end()}));
  map.insert("shapes", list);
  return map;
}

void add_operators(const KinetoTrace& trace, bool group_by_shapes, Sums& sums) {
  std::map<int64_t, std::vector<Moment>> by_thread;
  std::unordered_map<uint64_t, Sum*> by_correlation;
  std::vector<KinetoEvent> of_devices;
  trace.for_each_event([&](const KinetoEvent& event) {
    if (event.kind == KinetoEvent::Kind::kDevice) {
      of_devices.push_back(event);
      return;
    }
    if (event.kind == KinetoEvent::Kind::kMemory) {
      if (event.device == c10::DeviceType::CPU)
        by_thread[event.thread].push_back({event.begun, event.begun, nullptr, event.bytes});
      return;
    }
    Sum& sum = sums[{"operator", event.name, group_by_shapes ? event.shapes : Shapes()}];
    sum.count++;
    sum.flops += event.flops;
    by_correlation[event.correlation] = &sum;
    by_thread[event.thread].push_back({event.begun, event.ended, &sum, 0});
  });
  for (auto& [thread, moments] : by_thread) add_thread(moments);
  for (const KinetoEvent& event : of_devices) {
    const auto took = static_cast<double>(event.ended - event.begun);
    const auto found = by_correlation.find(event.correlation);
    if (found != by_correlation.end()) found->second->device += took;
    Sum& sum = sums[{"kernel", event.name, {}}];
    sum.count++;
    sum.device += took;
  }
}

}  // namespace

c10::IValue key_averages(const KinetoTrace& trace, const Spans::Recording& spans, bool group_by_shapes) {
  Sums sums;
  add_operators(trace, group_by_shapes, sums);
  for (const auto& [span, thread] : spans.spans) {
    Sum& sum = sums[{span_kind_name(span.kind), span.name != nullptr ? span.name : span.own_name, {}}];
    sum.count++;
    sum.bytes += span.bytes;
    sum.total += static_cast<double>(spans.to_unix(span.ended) - spans.to_unix(span.begun));
  }
  std::vector<const Sums::value_type*> in_order;
  for (const auto& entry : sums) in_order.push_back(&entry);
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto* one, const auto* other) {
    return std::make_pair(one->second.self, one->second.total) >
           std::make_pair(other->second.self, other->second.total);
  });
  auto list = tree::new_list();
  for (const auto* entry : in_order) list.push_back(describe(entry->first, entry->second, group_by_shapes));
  return list;
}

}  // namespace accel::profile
