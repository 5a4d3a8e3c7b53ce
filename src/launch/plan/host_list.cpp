// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/host_list.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"

namespace accel::launch {
namespace {

constexpr size_t kMostHosts = 65536;

ListedHost parse_line(std::istringstream& words, const std::string& name, const std::string& place) {
  constexpr std::string_view kSlots = "slots=";
  ListedHost host{name, 0};
  std::string word;
  while (words >> word) {
    const auto slots = word.rfind(kSlots, 0) == 0 ? parse_integer(word.substr(kSlots.size())) : std::nullopt;
    require(slots && *slots >= 1 && *slots <= static_cast<int64_t>(kMostHosts), Status::kInvalidArgument, place,
            " has '", word, "'; expected lines HOST slots=N, with N from 1");
    host.slots = static_cast<int>(*slots);
  }
  return host;
}

// Adds "prefix" + number + "suffix" for "1", "3-5" or "01-12".
void add_range(const std::string& prefix, const std::string& range, std::vector<std::string>& names) {
  const size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string::npos;
  };
  require(is_number(first) && is_number(last) && std::stol(first) <= std::stol(last), Status::kInvalidArgument,
          "the list of nodes has '", range, "'; expected N or FIRST-LAST");
  require(static_cast<size_t>(std::stol(last) - std::stol(first)) < kMostHosts, Status::kInvalidArgument,
          "the list of nodes has '", range, "'; expected at most ", kMostHosts, " nodes");
  // Before they are made: two brackets of 9999 would take seconds and a gigabyte.
  require(names.size() + static_cast<size_t>(std::stol(last) - std::stol(first)) < kMostHosts, Status::kInvalidArgument,
          "the list of nodes has more than ", kMostHosts);
  for (long number = std::stol(first); number <= std::stol(last); ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    names.push_back(prefix + digits);
  }
}

// A list without commas outside brackets; what follows brackets may have brackets again.
void add_nodes(const std::string& part, std::vector<std::string>& names) {
  std::vector<std::string> beginnings = {""};
  size_t from = 0;
  while (from < part.size()) {
    const size_t open = std::min(part.find('[', from), part.size());
    for (std::string& beginning : beginnings) beginning += part.substr(from, open - from);
    if (open == part.size()) break;
    const size_t close = part.find(']', open);
    require(close != std::string::npos && close > open + 1, Status::kInvalidArgument, "the list of nodes has '", part,
            "'; expected numbers in brackets: node[1-3,7]");
    std::vector<std::string> longer;
    for (const std::string& beginning : beginnings)
      for (const std::string& range : split_text(part.substr(open + 1, close - open - 1)))
        add_range(beginning, range, longer);
    beginnings = std::move(longer);
    from = close + 1;
  }
  names.insert(names.end(), beginnings.begin(), beginnings.end());
}

}  // namespace

std::vector<ListedHost> parse_hostfile(const std::string& text, const std::string& source) {
  std::vector<ListedHost> hosts;
  int number = 0;
  for (const std::string& whole : split_text(text, '\n')) {
    ++number;
    std::istringstream words(whole.substr(0, whole.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    const std::string place = accel::text(source, ":", number);
    require(name.front() != '-', Status::kInvalidArgument, place, " has '", name, "'; expected the name of a host");
    for (const ListedHost& other : hosts)
      require(other.name != name, Status::kInvalidArgument, place, " has '", name, "' again; expected each host once");
    require(hosts.size() < kMostHosts, Status::kInvalidArgument, source, " has more than ", kMostHosts, " hosts");
    hosts.push_back(parse_line(words, name, place));
  }
  require(!hosts.empty(), Status::kInvalidArgument, source, " has no hosts; expected lines HOST slots=N");
  return hosts;
}

std::vector<std::string> expand_node_list(const std::string& list) {
  std::vector<std::string> names;
  size_t from = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    if (i > from) add_nodes(list.substr(from, i - from), names);
    require(names.size() <= kMostHosts, Status::kInvalidArgument, "the list of nodes has more than ", kMostHosts);
    from = i + 1;
  }
  return names;
}

}  // namespace accel::launch
