#include "comm/ucx/algorithms/session.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>

#include "comm/ucx/host/page_size.hpp"
#include "comm/ucx/progress/group_progress.hpp"
#include "comm/ucx/progress/progress.hpp"

namespace accel::comm::ucx {
namespace {

constexpr int kPolls = 500;

}  // namespace

void Scratch::Free::operator()(char* memory) const { std::free(memory); }

char* Scratch::reserve(size_t bytes) {
  if (bytes > size_) {
    const size_t rounded = round_up(bytes, kPage);
    memory_.reset();
    size_ = 0;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kPage, rounded)));
    if (!memory_) throw std::bad_alloc();
    size_ = rounded;
  }
  return memory_.get();
}

Session::Session(GroupProgress& group, Buffers& buffers, const Header& header, const char* call,
                 std::chrono::milliseconds timeout)
    : group_(group), buffers_(buffers), header_(header), call_(call), timeout_(timeout) {
  buffers_.messages.clear();
}

Session::~Session() {
  auto& messages = buffers_.messages;
  if (std::uncaught_exceptions() == 0) return;
  auto& transport = *group_.transport_;
  for (auto& message : messages) transport.cancel(message);
  transport.settle();
}

int Session::rank() const { return team_ ? team_->position : group_.rank(); }
int Session::size() const { return team_ ? team_->size() : group_.size(); }
int Session::rank_of(int member) const { return team_ ? team_->ranks[static_cast<size_t>(member)] : member; }
const Hosts& Session::hosts() const { return group_.peers_.hosts(); }

size_t Session::send(int peer, const void* data, size_t bytes, Channel channel) {
  buffers_.messages.emplace_back();  // its room, before UCX has it
  buffers_.messages.back() = group_.transport_->send(rank_of(peer), data, bytes, channel, header_.sequence);
  return buffers_.messages.size() - 1;
}

size_t Session::receive(int peer, void* data, size_t bytes, Channel channel) {
  buffers_.messages.emplace_back();
  buffers_.messages.back() = group_.transport_->receive(rank_of(peer), data, bytes, channel, header_.sequence);
  return buffers_.messages.size() - 1;
}

void Session::wait(size_t message) {
  Message& waited = buffers_.messages[message];
  if (waited.done()) return;
  group_.wait_until([&waited] { return waited.done(); }, *this);
}

void Session::wait_all() {
  for (size_t message = 0; message < buffers_.messages.size(); message++) wait(message);
}

HostSegment* Session::segment() const {
  const bool on_host = hosts().count() == 1 || team_ == &hosts().neighbours();
  return on_host ? group_.segment_.get() : nullptr;
}

void Session::wait_for(int peer, HostSegment::Stage stage, uint32_t step) {
  const HostSegment& segment = *group_.segment_;
  // Ranks that have a core each mostly arrive within a microsecond, less than a round of the transport and the clock
  // takes.
  const int polls = group_.engine_->spins() ? kPolls : 1;
  for (int poll = 0; poll < polls; poll++) {
    if (!segment.reached(peer, stage, step)) continue;
    if (poll > 0) group_.engine_->spun_in_time();
    return;
  }
  awaited_ = {stage, step, peer};
  group_.wait_until([&segment, peer, stage, step] { return segment.reached(peer, stage, step); }, *this);
  awaited_.reset();
}

FutexWait Session::begin_sleep() const { return group_.segment_->begin_sleep(awaited_->peer, awaited_->stage); }
bool Session::has_arrived() const { return group_.segment_->reached(awaited_->peer, awaited_->stage, awaited_->step); }
void Session::end_sleep() const { group_.segment_->end_sleep(awaited_->peer, awaited_->stage); }

void Session::check() { group_.check(this); }
void Session::throw_if_failed() const { group_.throw_if_failed(); }

RemoteAddress Session::remote_address(const void* data, size_t bytes) {
  return group_.memory_.remote_address(data, bytes);
}
char* Session::map(int peer, const RemoteAddress& address) {
  return group_.memory_.map(peer, group_.peers_.process(peer), address);
}

std::vector<int> Session::unanswered() {
  std::vector<int> ranks;
  for (auto& message : buffers_.messages)
    if (!message.done()) ranks.push_back(message.peer());
  for (int peer = 0; awaited_ && peer < size(); peer++)
    if (peer != rank() && !group_.segment_->reached(peer, awaited_->stage, awaited_->step))
      ranks.push_back(rank_of(peer));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace accel::comm::ucx
