// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/session.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>

#include "comm/ucx/host/page_size.hpp"

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

Session::Session(const SessionLinks& links, Buffers& buffers, const Header& header, const char* call,
                 std::chrono::milliseconds timeout)
    : links_(links), buffers_(buffers), header_(header), call_(call), deadline_(timeout) {
  buffers_.messages.clear();
}

Session::~Session() {
  auto& messages = buffers_.messages;
  if (std::uncaught_exceptions() == 0) return;
  for (auto& message : messages) links_.transport.cancel(message);
  links_.transport.settle();
}

size_t Session::send(int peer, const void* data, size_t bytes, Channel channel) {
  buffers_.messages.emplace_back();  // its room, before UCX has it
  buffers_.messages.back() = links_.transport.send(rank_of(peer), data, bytes, channel, header_.sequence);
  return buffers_.messages.size() - 1;
}

size_t Session::receive(int peer, void* data, size_t bytes, Channel channel) {
  buffers_.messages.emplace_back();
  buffers_.messages.back() = links_.transport.receive(rank_of(peer), data, bytes, channel, header_.sequence);
  return buffers_.messages.size() - 1;
}

void Session::wait(size_t message) {
  Message& waited = buffers_.messages[message];
  if (waited.done()) return;
  message_ = &waited;
  links_.waiter.wait(*this);
  message_ = nullptr;
}

void Session::wait_all() {
  for (size_t message = 0; message < buffers_.messages.size(); message++) wait(message);
}

HostSegment* Session::segment() const {
  const bool on_host = hosts().count() == 1 || team_ == &hosts().neighbours();
  return on_host ? links_.segment : nullptr;
}

void Session::wait_for(int peer, HostSegment::Stage stage, uint32_t step) {
  const HostSegment& segment = *links_.segment;
  // Ranks that have a core each mostly arrive within a microsecond, less than a round of the transport and the clock
  // takes.
  const int polls = links_.spin.length().count() > 0 ? kPolls : 1;
  for (int poll = 0; poll < polls; poll++) {
    if (!segment.reached(peer, stage, step)) continue;
    if (poll > 0) links_.spin.ended_early();
    return;
  }
  step_.emplace(segment, peer, stage, step);
  links_.waiter.wait(*this);
  step_.reset();
}

std::shared_ptr<char> Session::map(int peer, const RemoteAddress& address) {
  return links_.memory.map(peer, links_.peers.process(peer), address);
}

std::vector<int> Session::unanswered() {
  std::vector<int> ranks;
  for (auto& message : buffers_.messages)
    if (!message.done()) ranks.push_back(message.peer());
  for (int peer = 0; step_ && peer < size(); peer++)
    if (peer != rank() && !step_->is_reached_by(peer)) ranks.push_back(rank_of(peer));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace accel::comm::ucx
