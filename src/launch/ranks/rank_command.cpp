// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/rank_command.hpp"

#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "launch/ranks/output_streams.hpp"
#include "launch/ranks/rank_environment.hpp"

namespace accel::launch {
namespace {

std::string prefix_of_lines(const LaunchOptions& options, int rank, int local_rank) {
  const std::pair<std::string_view, std::string> names[] = {
      {"${role_name}", options.role}, {"${rank}", std::to_string(rank)}, {"${local_rank}", std::to_string(local_rank)}};
  std::string prefix = options.output.line_prefix;
  for (const auto& [name, value] : names)
    for (size_t at = prefix.find(name); at != std::string::npos; at = prefix.find(name, at + value.size()))
      prefix.replace(at, name.size(), value);
  return prefix;
}

}  // namespace

std::string rank_log_file(const std::string& log_dir, int rank) {
  return log_dir.empty() ? "" : text(log_dir, "/rank_", rank, ".log");
}

RankCommand rank_command(const LaunchOptions& options, const HostRanks& host_ranks, int local_rank,
                         OutputRelays& shown) {
  const int rank = host_ranks.first_rank + local_rank;
  const OutputOptions& output = options.output;
  RankCommand command;
  command.program = options.program;
  command.environment = rank_environment(options, host_ranks, local_rank);
  command.is_main = output.is_of_last_rank ? rank == host_ranks.world_size - 1 : local_rank == 0;
  const OutputStreams tee = output_streams("--tee", output.tee, local_rank);
  const OutputStreams redirected = output_streams("--redirects", output.redirects, local_rank);
  const bool has_prefix = !output.line_prefix.empty();
  const bool is_shown = command.is_main || has_prefix;
  command.shows_stdout = (is_shown || tee.out) && !redirected.out;
  command.shows_stderr = (is_shown || tee.error) && !redirected.error;
  command.prefix = prefix_of_lines(options, rank, local_rank);
  // The main rank has the launcher's own output, unless something is to be done to it.
  const bool is_untouched =
      command.is_main && !has_prefix && command.shows_stdout && command.shows_stderr && output.log_dir.empty();
  if (!is_untouched) command.shown = &shown;
  if (output.log_dir.empty()) return command;
  command.log_file = rank_log_file(output.log_dir, rank);
  if (host_ranks.restart_count > 0)
    command.log_header = text("accel launch: this is attempt ", host_ranks.restart_count + 1, '\n');
  return command;
}

}  // namespace accel::launch
