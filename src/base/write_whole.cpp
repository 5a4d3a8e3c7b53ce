// SPDX-License-Identifier: Apache-2.0
#include "base/write_whole.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace accel {
namespace {

constexpr int kWaitMs = 1000;

// The signal is sent to the thread that writes: it is blocked, and taken back if it was not pending before.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~NoSigpipe() {
    const int error = errno;
    if (broken_ && !was_pending_) {
      const timespec at_once{0, 0};
      sigtimedwait(&sigpipe_, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

  void note_broken_pipe() { broken_ = true; }

 private:
  sigset_t sigpipe_{}, before_{};
  bool was_pending_ = false, broken_ = false;
};

}  // namespace

size_t write_whole(int descriptor, std::string_view bytes) {
  NoSigpipe no_signal;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE) no_signal.note_broken_pipe();
    if (errno != EAGAIN && errno != EWOULDBLOCK) break;
    pollfd writable{descriptor, POLLOUT, 0};
    if (poll(&writable, 1, kWaitMs) <= 0) {
      errno = EAGAIN;
      break;
    }
  }
  return done;
}

}  // namespace accel
