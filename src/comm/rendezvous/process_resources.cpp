// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/process_resources.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "os/background_thread.hpp"

namespace accel::comm {
namespace {

constexpr int kMostOnHost = 64;  // that are counted

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// The number of file descriptors that can still be opened; nothing if unknown.
std::optional<int> free_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (!folder) return errno == EMFILE ? std::optional(0) : std::nullopt;
  int used = -3;  // ".", ".." and the folder itself
  while (readdir(folder.get()) != nullptr) used++;
  return std::max(most - used, 0);
}

// The number of threads, up to `wanted`, that can be started.
int startable_threads(int wanted) {
  std::promise<void> enough;
  const std::shared_future<void> end = enough.get_future().share();
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(wanted));
  std::exception_ptr no_memory;
  try {
    while (static_cast<int>(threads.size()) < wanted)
      threads.push_back(background_thread("accel-trial", [end] { end.wait(); }));
  } catch (const std::bad_alloc&) {
    no_memory = std::current_exception();
  } catch (const std::exception&) {
    // The limit is reached.
  }
  enough.set_value();
  for (std::thread& thread : threads) thread.join();
  if (no_memory != nullptr) std::rethrow_exception(no_memory);
  return static_cast<int>(threads.size());
}

}  // namespace

// Measured: the server has four for itself and three for each rank, two connections of the rank and one that watches
// it.
ProcessResources resources_of_server(int ranks) { return {6 + 3 * ranks, 1}; }

// Measured: 18, and one for each other rank of the host. Connections to other hosts are made when they are needed. UCX
// and the group have a thread each.
ProcessResources resources_of_rank(int ranks) { return {26 + std::min(ranks, kMostOnHost), 2}; }

void require_resources(const ProcessResources& needed, int rank, const char* purpose) {
  const auto descriptors = free_descriptors();
  require(!descriptors || *descriptors >= needed.descriptors, Status::kBackend, "rank ", rank, " needs ",
          needed.descriptors, " file descriptors ", purpose, " and has ", descriptors.value_or(0),
          " left; raise the limit of open files (ulimit -n)");
  const int threads = startable_threads(needed.threads);
  require(threads >= needed.threads, Status::kBackend, "rank ", rank, " needs ", needed.threads, " threads ", purpose,
          " and can start ", threads, "; raise the limit of processes (ulimit -u, or pids.max of its control group)");
}

}  // namespace accel::comm
