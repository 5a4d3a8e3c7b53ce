// Failure detection of a group, and its end. See docs/faults.md.
#include <algorithm>
#include <map>
#include <new>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/error_line.hpp"
#include "comm/record/call_description.hpp"
#include "comm/ucx/host/status_page.hpp"
#include "comm/ucx/progress/group_progress.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::comm::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStoreInterval = std::chrono::seconds(1);
constexpr auto kLossGrace = std::chrono::seconds(1);
constexpr const char* kNoMemory = "no memory";  // short enough for std::string not to allocate

// A lost or silent peer is the same failure on every rank that waits, whichever noticed it first. Any other failure is
// one rank's own, and aborts the calls of the others.
CollectiveFailure kind_for_others(CollectiveFailure kind) {
  const bool about_a_peer = kind == CollectiveFailure::kPeerLost || kind == CollectiveFailure::kTimeout;
  return about_a_peer ? kind : CollectiveFailure::kAborted;
}

}  // namespace

// UCX's error about a lost peer is not the cause: that may be published, or the end of its process not yet noticed.
Failure GroupProgress::explain(Failure failure, const std::string& title) {
  constexpr int kGrace = 50;  // milliseconds
  if (failure.kind != CollectiveFailure::kBackend) return failure;
  if (const auto published = peers_.published_failure()) return from_peer(*published);
  for (const Deadline grace{Deadline::Milliseconds(kGrace)}; ended_peers_.empty() && !grace.passed();)
    check_ended_processes(1);
  if (ended_peers_.empty()) return failure;
  return {CollectiveFailure::kPeerLost, rank(),
          text("rank ", ended_peers_[0], " is lost during ", title, ": its process ended")};
}

Failure GroupProgress::from_peer(const Failure& failure) const {
  return {kind_for_others(failure.kind), rank(), text("rank ", failure.rank, " gave up the group: ", failure.message)};
}

std::optional<Failure> GroupProgress::failure_of_neighbour() const {
  for (int peer = 0; peer < size(); peer++)
    if (const StatusPage* const page = peers_.status_page(peer))
      if (const auto failure = page->failure()) return failure;
  return std::nullopt;
}

// The store is slow, and may be gone.
void GroupProgress::throw_failure_of_others() {
  if (const auto failure = failure_of_neighbour()) throw from_peer(*failure).error();
  if (const auto failure = peers_.published_failure()) throw from_peer(*failure).error();
}

std::string GroupProgress::where_ranks_are() {
  const auto calls = peers_.calls();
  if (calls.size() < 2) return {};
  std::map<std::string, std::vector<int>> ranks_by_call;
  for (const auto& [peer, call] : calls) ranks_by_call[call].push_back(peer);
  return text("; ", describe_calls(ranks_by_call));
}

void GroupProgress::check_peers(Session* session) {
  const std::vector<int> broken = transport_->broken();
  if (!ended_peers_.empty() || !broken.empty()) {
    const auto waiting = session ? session->unanswered() : std::vector<int>();
    const auto check = [&](int peer, const char* what) {
      const bool waits = std::find(waiting.begin(), waiting.end(), peer) != waiting.end();
      const auto open =
          std::find_if(posted_.begin(), posted_.end(), [peer](const auto& call) { return call.peer == peer; });
      if (!waits && open == posted_.end()) return;
      throw CollectiveError(
          CollectiveFailure::kPeerLost, rank(),
          text("rank ", peer, " is lost during ", waits ? session->title() : open->work->title(), ": ", what));
    };
    for (const int peer : ended_peers_) check(peer, "its process ended");
    for (const int peer : broken) check(peer, "its connection broke");
    if (const auto failure = failure_of_neighbour()) throw from_peer(*failure).error();
  }
  const auto now = Clock::now();
  // A wait for a live rank may not end either: sooner or later that rank needs the lost one.
  if (session && loss_ && now - loss_->since >= kLossGrace)
    throw CollectiveError(CollectiveFailure::kPeerLost, rank(),
                          text("rank ", loss_->rank, " is lost during ", session->title(), ": its process ended"));
  if (now - last_check_ < kStoreInterval) return;
  // The first check comes one interval after the wait began.
  const bool waits_long = !session || session->deadline().total() - session->deadline().left() >= kStoreInterval;
  if (!waits_long) return;
  last_check_ = now;
  throw_failure_of_others();
}

void GroupProgress::check_deadlines(Session* session) {
  if (session && session->deadline().passed()) {
    const auto ranks = session->unanswered();
    const Hosts& hosts = peers_.hosts();
    const bool at_home =
        !ranks.empty() && !hosts.hold_single_ranks() && hosts.count() > 1 &&
        std::all_of(ranks.begin(), ranks.end(), [&hosts](int peer) { return hosts.host_of(peer) == hosts.own(); });
    if (at_home && !session->grace().passed()) {
      throw_failure_of_others();
    } else if (!ranks.empty()) {
      const int elsewhere = hosts.ranks((hosts.own() + 1) % hosts.count())[0];
      throw CollectiveError(
          CollectiveFailure::kTimeout, rank(),
          text(session->title(), " on rank ", rank(), " timed out after ", session->deadline().total().count(),
               " ms: no answer from ", list_ranks(ranks),
               at_home ? text(", which may wait for another host, such as that of rank ", elsewhere) : "",
               where_ranks_are()));
    }
  }
  for (const auto& call : posted_)
    if (call.deadline.passed())
      throw CollectiveError(CollectiveFailure::kTimeout, rank(),
                            text(call.work->title(), " on rank ", rank(), " timed out after ",
                                 call.deadline.total().count(), " ms", where_ranks_are()));
}

Failure GroupProgress::current_failure(const std::string& what) const {
  try {
    throw;
  } catch (const CollectiveError& error) {
    return {error.failure(), rank(), error.what()};
  } catch (const std::exception& error) {
    return {tensor::means_no_memory(error) ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend, rank(),
            text(what, " failed on rank ", rank(), ": ", error_line(error))};
  }
}

std::exception_ptr GroupProgress::fail_task(Task& task) noexcept {
  for (at::Tensor& memory : task.held) keep(std::move(memory));
  try {
    const auto title = task.work->title();
    auto failure = current_failure(title);
    if (!group_survives(failure.kind)) {
      failure = explain(std::move(failure), title);
      fail_group(failure);
    } else {
      skip_rest_of(task);
    }
    return std::make_exception_ptr(failure.error());
  } catch (const std::exception&) {
    fail_group({CollectiveFailure::kOutOfMemory, rank(), kNoMemory});
    return std::current_exception();
  }
}

void GroupProgress::skip_rest_of(const Task& task) noexcept {
  const std::lock_guard<std::mutex> lock(engine_->mutex());
  const uint64_t skipped = task.parts.back().header.sequence - task.work->getSequencenumber();
  if (failure_ || skipped == 0) return;
  sequence_ -= skipped;
  for (Task& later : tasks_) {
    for (auto& part : later.parts) part.header.sequence -= skipped;
    later.work->set_sequence(later.parts[0].header.sequence);
  }
}

void GroupProgress::fail_group_for_exception() noexcept {
  try {
    fail_group(current_failure("a call"));
  } catch (const std::exception&) {
    fail_group({CollectiveFailure::kOutOfMemory, rank(), kNoMemory});
  }
}

Failure GroupProgress::end_of_group(const char* when) const noexcept {
  try {
    return {CollectiveFailure::kAborted, rank(), text("rank ", rank(), " shut the group down", when)};
  } catch (const std::bad_alloc&) {
    return {CollectiveFailure::kAborted, rank(), kNoMemory};
  }
}

void GroupProgress::fail_group(Failure failure) noexcept {
  {
    const std::lock_guard<std::mutex> lock(engine_->mutex());
    if (failure_) return;
    failure_ = std::move(failure);
    failed_.store(true);
  }
  if (StatusPage* const page = peers_.status_page(rank())) page->set_failure(*failure_);
  peers_.publish_failure(*failure_);
}

std::exception_ptr GroupProgress::error_for_open_calls() const noexcept {
  try {
    return std::make_exception_ptr(CollectiveError(kind_for_others(failure_->kind), rank(), failure_->message));
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

void GroupProgress::fail_open_calls() noexcept {
  std::list<Task> tasks;
  std::list<PointToPoint> calls;
  std::vector<PointToPoint> posted;
  {
    const std::lock_guard<std::mutex> lock(engine_->mutex());
    tasks.swap(tasks_);
    tasks_waiting_.store(false);
    submissions_waiting_.store(false);
    calls.swap(submissions_);
  }
  const auto error = error_for_open_calls();
  for (auto& call : posted_) transport_->cancel(call.message);
  transport_->settle();
  posted.swap(posted_);
  for (auto& call : posted) {
    keep(call.memory);
    call.work->complete(error, call.thread_state);
  }
  for (auto& call : calls) call.work->complete(error, call.thread_state);
  for (auto& task : tasks) task.work->complete(error, task.thread_state);
}

void GroupProgress::keep(at::Tensor memory) noexcept {
  try {
    memory_of_calls_.front().abandoned.push_back(memory);
  } catch (const std::bad_alloc&) {
    static_cast<void>(memory.unsafeReleaseTensorImpl());  // leaked: there is no memory to record it
  }
}

void GroupProgress::throw_failure(const Failure& cause) const {
  throw CollectiveError(CollectiveFailure::kAborted, rank(), text("the group has failed before: ", cause.message));
}

}  // namespace accel::comm::ucx
