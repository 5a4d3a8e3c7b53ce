// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/rank_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "os/system_error.hpp"

namespace accel::launch {
namespace {

// A line without an end is shown in parts.
constexpr size_t kLongestLine = 64 * 1024;

bool append_whole(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

RankOutput::RankOutput(RankOutputPlan plan) : plan_(std::move(plan)) {
  if (!plan_.log_file.empty()) {
    log_ = FileDescriptor(open(plan_.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!log_.is_open() || !append_whole(log_.number(), plan_.log_header))
      fail_system(Status::kIo, "write", plan_.log_file);
  }
  if (plan_.is_inherited) return;
  for (size_t stream = 0; stream < (is_one_pipe() ? 1 : 2); ++stream) {
    streams_[stream].pipe = make_pipe();
    fcntl(streams_[stream].pipe.read_end.number(), F_SETFL, O_NONBLOCK);
  }
}

void RankOutput::close_child_ends() {
  for (Stream& stream : streams_) stream.pipe.write_end.reset();
}

OutputRelay* RankOutput::relay_of(size_t stream) const {
  if (plan_.shown == nullptr || !(stream == 0 ? plan_.shows_stdout : plan_.shows_stderr)) return nullptr;
  return stream == 0 ? &plan_.shown->out : &plan_.shown->error;
}

bool RankOutput::may_read(size_t stream) const {
  const OutputRelay* const shown = relay_of(stream);
  return shown == nullptr || !shown->is_full();
}

void RankOutput::add_polled(std::vector<pollfd>& polled) const {
  for (size_t stream = 0; stream < streams_.size(); ++stream)
    polled.push_back({may_read(stream) ? streams_[stream].pipe.read_end.number() : -1, POLLIN, 0});
}

const pollfd* RankOutput::read_polled(const pollfd* polled) {
  for (size_t stream = 0; stream < streams_.size(); ++stream)
    if (polled[stream].revents != 0) read(stream, false);
  return polled + streams_.size();
}

void RankOutput::read_all() {
  for (size_t stream = 0; stream < streams_.size(); ++stream) read(stream, true);
}

void RankOutput::read(size_t stream, bool is_last) {
  FileDescriptor& descriptor = streams_[stream].pipe.read_end;
  if (!descriptor.is_open()) return;
  char block[16 * 1024];
  // A rank that writes without end must not keep the launcher from its other work.
  for (int round = 0; round < 16 && (is_last || may_read(stream)); ++round) {
    const ssize_t count = ::read(descriptor.number(), block, sizeof(block));
    if (count > 0) {
      take(stream, {block, static_cast<size_t>(count)});
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      end_line(stream);
      descriptor.reset();
      return;
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

void RankOutput::take(size_t stream, std::string_view text) {
  tail_.add(text);
  // A full disk does not end the training.
  if (log_.is_open() && !append_whole(log_.number(), text)) log_.reset();
  show(stream, text);
}

void RankOutput::show(size_t stream, std::string_view text) {
  OutputRelay* const shown = relay_of(stream);
  if (shown == nullptr) return;
  if (plan_.prefix.empty()) return shown->add(text);
  std::string& line = streams_[stream].line;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    line.append(text.substr(0, end));
    if (end == std::string_view::npos) {
      if (line.size() >= kLongestLine) end_line(stream);
      return;
    }
    text.remove_prefix(end + 1);
    shown->add(plan_.prefix + line + '\n');
    line.clear();
  }
}

void RankOutput::end_line(size_t stream) {
  std::string& line = streams_[stream].line;
  if (line.empty()) return;
  relay_of(stream)->add(plan_.prefix + line + '\n');
  line.clear();
}

}  // namespace accel::launch
