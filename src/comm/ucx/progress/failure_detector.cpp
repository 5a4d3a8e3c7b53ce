// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/failure_detector.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/record/call_description.hpp"
#include "comm/ucx/progress/group_failure.hpp"
#include "comm/ucx/progress/posted_calls.hpp"

namespace accel::comm::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStoreInterval = std::chrono::seconds(1);
constexpr auto kLossGrace = std::chrono::seconds(1);
constexpr auto kReportGrace = std::chrono::milliseconds(300);

}  // namespace

FailureDetector::FailureDetector(Peers& peers, const Transport& transport)
    : peers_(peers), transport_(transport), events_(epoll_create1(EPOLL_CLOEXEC)) {
  ended_peers_.reserve(static_cast<size_t>(peers_.size()));
  bool watches = events_.is_open();
  for (int peer = 0; peer < peers_.size(); peer++) {
    if (peers_.process_descriptor(peer) < 0) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = peer;
    watches = watches && epoll_ctl(events_.number(), EPOLL_CTL_ADD, peers_.process_descriptor(peer), &event) == 0;
  }
  if (!watches)
    throw CollectiveError(CollectiveFailure::kBackend, rank(),
                          text("rank ", rank(), " cannot wait for events: ", std::strerror(errno),
                               "; see the limit of open files (ulimit -n)"));
}

void FailureDetector::check_ended_processes(int timeout_ms) {
  epoll_event events[8];
  const int count = epoll_wait(events_.number(), events, 8, timeout_ms);
  for (int i = 0; i < count; i++) {
    // Messages that the process sent before it ended are still received; its other messages fail later.
    const int peer = events[i].data.fd;
    const StatusPage* const page = peers_.status_page(peer);
    ended_peers_.push_back(peer);
    if (!loss_ && (page == nullptr || !page->has_left())) loss_ = Loss{peer, Clock::now()};
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, peers_.process_descriptor(peer), nullptr);
  }
}

void FailureDetector::check(Session* session, const std::vector<PointToPoint>& messages) {
  check_peers(session, messages);
  check_deadlines(session, messages);
}

Failure FailureDetector::explain(Failure failure, const std::string& title) {
  constexpr int kGrace = 50;  // milliseconds
  if (failure.kind != CollectiveFailure::kBackend) return failure;
  if (const auto published = peers_.published_failure()) return from_peer(*published);
  for (const Deadline grace{Deadline::Milliseconds(kGrace)}; ended_peers_.empty() && !grace.passed();)
    check_ended_processes(1);
  if (ended_peers_.empty()) return failure;
  return {CollectiveFailure::kPeerLost, rank(),
          text("rank ", peers_.job_ranks()[ended_peers_[0]], " is lost during ", title, ": its process ended")};
}

Failure FailureDetector::from_peer(const Failure& failure) const {
  return {kind_for_others(failure.kind), rank(), text("rank ", failure.rank, " gave up the group: ", failure.message)};
}

std::optional<Failure> FailureDetector::failure_of_neighbour() const {
  for (int peer = 0; peer < peers_.size(); peer++)
    if (const StatusPage* const page = peers_.status_page(peer))
      if (const auto failure = page->failure()) return failure;
  return std::nullopt;
}

// The store is slow, and may be gone.
void FailureDetector::throw_failure_of_others() {
  if (const auto failure = failure_of_neighbour()) throw from_peer(*failure).error();
  if (const auto failure = peers_.published_failure()) throw from_peer(*failure).error();
}

std::string FailureDetector::where_ranks_are() {
  const auto calls = peers_.calls();
  if (calls.size() < 2) return {};
  std::map<std::string, std::vector<int>> ranks_by_call;
  for (const auto& [peer, call] : calls) ranks_by_call[call].push_back(peers_.job_ranks()[peer]);
  return text("; ", describe_calls(ranks_by_call));
}

void FailureDetector::check_peers(Session* session, const std::vector<PointToPoint>& messages) {
  const std::vector<int> broken = transport_.broken();
  if (!ended_peers_.empty() || !broken.empty()) {
    const auto waiting = session ? session->unanswered() : std::vector<int>();
    const auto check = [&](int peer, const char* what) {
      const bool waits = std::find(waiting.begin(), waiting.end(), peer) != waiting.end();
      const auto open =
          std::find_if(messages.begin(), messages.end(), [peer](const auto& call) { return call.peer == peer; });
      if (!waits && open == messages.end()) return;
      throw CollectiveError(CollectiveFailure::kPeerLost, rank(),
                            text("rank ", peers_.job_ranks()[peer], " is lost during ",
                                 waits ? session->title() : open->work->title(), ": ", what));
    };
    for (const int peer : ended_peers_) check(peer, "its process ended");
    for (const int peer : broken) check(peer, "its connection broke");
    if (const auto failure = failure_of_neighbour()) throw from_peer(*failure).error();
  }
  const auto now = Clock::now();
  // A wait for a live rank may not end either: sooner or later that rank needs the lost one.
  if (session && loss_ && now - loss_->since >= kLossGrace)
    throw CollectiveError(
        CollectiveFailure::kPeerLost, rank(),
        text("rank ", peers_.job_ranks()[loss_->rank], " is lost during ", session->title(), ": its process ended"));
  if (now - last_check_ < kStoreInterval) return;
  // The first check comes one interval after the wait began.
  const bool waits_long = !session || session->deadline().total() - session->deadline().left() >= kStoreInterval;
  if (!waits_long) return;
  last_check_ = now;
  throw_failure_of_others();
}

void FailureDetector::check_deadlines(Session* session, const std::vector<PointToPoint>& messages) {
  if (session && session->deadline().passed()) {
    const auto ranks = session->unanswered();
    const Hosts& hosts = peers_.hosts();
    const bool at_home =
        !ranks.empty() && !hosts.hold_single_ranks() && hosts.count() > 1 &&
        std::all_of(ranks.begin(), ranks.end(), [&hosts](int peer) { return hosts.host_of(peer) == hosts.own(); });
    // A rank of this host that waits for another host can report that first.
    if (at_home && !session->deadline().later(kReportGrace).passed()) {
      throw_failure_of_others();
    } else if (!ranks.empty()) {
      const int elsewhere = peers_.job_ranks()[hosts.ranks((hosts.own() + 1) % hosts.count())[0]];
      throw CollectiveError(
          CollectiveFailure::kTimeout, rank(),
          text(session->title(), " on rank ", rank(), " timed out after ", session->deadline().total().count(),
               " ms: no answer from ", list_ranks(peers_.job_ranks()[ranks]),
               at_home ? text(", which may wait for another host, such as that of rank ", elsewhere) : "",
               where_ranks_are()));
    }
  }
  for (const auto& call : messages)
    if (call.deadline.passed())
      throw CollectiveError(CollectiveFailure::kTimeout, rank(),
                            text(call.work->title(), " on rank ", rank(), " timed out after ",
                                 call.deadline.total().count(), " ms", where_ranks_are()));
}

}  // namespace accel::comm::ucx
