// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_attempt.hpp"

#include <utility>

#include "base/authentication_code.hpp"
#include "base/error.hpp"
#include "launch/hosts/message_link.hpp"

namespace accel::launch {
namespace {

Json of(int64_t number) { return Json::number(number); }

int integer_in(const Json& message, const char* key) { return static_cast<int>(json_integer(message, key, 0)); }

}  // namespace

Json HostAttempt::message(const char* type, Json::Members members) const {
  members.insert(members.begin(), {"attempt", of(number_)});
  return message_of(type, std::move(members));
}

bool HostAttempt::is_meant_by(const Json& message) const { return integer_in(message, "attempt") == number_; }

HostRanks HostAttempt::ranks_in(const Json& order) const {
  HostRanks host_ranks;
  host_ranks.first_rank = first_rank_;
  host_ranks.local_processes = options_.local_processes();
  host_ranks.world_size = integer_in(order, "world_size");
  host_ranks.host_number = integer_in(order, "host_number");
  host_ranks.num_hosts = integer_in(order, "num_hosts");
  if (options_.hosts.max_hosts > 1) host_ranks.master_addr = options_.hosts.coordinator;
  host_ranks.master_port = integer_in(order, "port");
  host_ranks.restart_count = number_;
  const std::string nonce = json_text(order, "nonce", "");
  host_ranks.token =
      options_.hosts.secret.empty() ? nonce : authentication_code(options_.hosts.secret, "token " + nonce);
  return host_ranks;
}

void HostAttempt::start(const Json& order) {
  number_ = integer_in(order, "attempt");
  first_rank_ = integer_in(order, "first_rank");
  has_told_failure_ = has_told_end_ = false;
  job_.reset();
  job_.emplace(options_, ranks_in(order), guardian_, signal_mask_);
}

std::vector<Json> HostAttempt::failed_start(const Error& error) const {
  const int status = error.status() == Status::kNotFound ? 127 : 126;
  return {message("failed", {{"rank", of(first_rank_)},
                             {"status", of(status)},
                             {"what", Json(error.message())},
                             {"hopeless", Json(true)}}),
          message("ended", {{"status", of(status)}, {"finished", Json(false)}})};
}

std::vector<Json> HostAttempt::news() {
  std::vector<Json> news;
  if (!job_ || has_told_end_) return news;
  if (job_->first_failure() && !std::exchange(has_told_failure_, true)) {
    const size_t failed = *job_->first_failure();
    const ProcessEnd& end = job_->end_of(failed);
    news.push_back(message(
        "failed",
        {{"rank", of(job_->global_rank(failed))}, {"status", of(end.exit_status())}, {"what", Json(describe(end))}}));
  }
  if (job_->is_running()) return news;
  has_told_end_ = true;
  if (job_->first_failure()) job_->report_failure();
  news.push_back(message("ended", {{"status", of(job_->exit_status())}, {"finished", Json(job_->all_succeeded())}}));
  return news;
}

}  // namespace accel::launch
