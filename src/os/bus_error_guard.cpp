// SPDX-License-Identifier: Apache-2.0
#include "os/bus_error_guard.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "base/error.hpp"

namespace accel {
namespace {

// The handler of the signal reads these and takes no lock.
struct Mapping {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> has_lost_pages{false};
  std::atomic<const std::string*> path{nullptr};
};

constexpr size_t kMostMappings = 4096;  // more are not guarded

struct Mappings {
  std::array<Mapping, kMostMappings> all;
  std::atomic<size_t> used{0};  // those behind were never used
  std::mutex mutex;             // for everything below, and for changes of the above
  int guards = 0;
  struct sigaction before = {};
  std::string lost;  // the path of a file that lost pages and is not mapped any more
};

Mappings& mappings() {
  static auto* const shared = new Mappings;  // outlives all mappings
  return *shared;
}

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

bool replace_lost_page(uintptr_t address) {
  Mappings& shared = mappings();
  const size_t used = shared.used.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; i++) {
    Mapping& mapping = shared.all[i];
    const uintptr_t begin = mapping.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= mapping.end.load(std::memory_order_acquire)) continue;
    void* const page = reinterpret_cast<void*>(address - address % page_size());
    mapping.has_lost_pages.store(true, std::memory_order_release);
    return ::mmap(page, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
  }
  return false;
}

void handle_bus_error(int signal, siginfo_t* info, void* context) {
  const int code = errno;
  const bool is_replaced = replace_lost_page(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = code;
  if (is_replaced) return;
  const struct sigaction& before = mappings().before;
  if ((before.sa_flags & SA_SIGINFO) != 0)
    before.sa_sigaction(signal, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    before.sa_handler(signal);
  else
    ::signal(signal, SIG_DFL);  // the instruction is tried again, and ends the process
}

}  // namespace

BusErrorGuard::BusErrorGuard() {
  Mappings& shared = mappings();
  page_size();  // before the handler needs it
  const std::lock_guard lock(shared.mutex);
  if (shared.guards++ > 0) return;
  shared.lost.clear();
  struct sigaction action = {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigaction(SIGBUS, &action, &shared.before);
}

BusErrorGuard::~BusErrorGuard() {
  Mappings& shared = mappings();
  const std::lock_guard lock(shared.mutex);
  if (--shared.guards > 0) return;
  struct sigaction current = {};
  ::sigaction(SIGBUS, nullptr, &current);
  const bool is_ours = (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handle_bus_error;
  if (is_ours) ::sigaction(SIGBUS, &shared.before, nullptr);  // the program may have set another one meanwhile
}

void BusErrorGuard::check() const {
  Mappings& shared = mappings();
  const std::lock_guard lock(shared.mutex);
  std::string path = shared.lost;
  for (size_t i = 0; i < shared.used && path.empty(); i++)
    if (shared.all[i].has_lost_pages && shared.all[i].begin != 0) path = *shared.all[i].path;
  require(path.empty(), Status::kIo, "'", path,
          "' became shorter while it was read; expected that files which are in use are replaced, not changed");
}

void register_mapping(char* begin, size_t size, const std::string& path) {
  Mappings& shared = mappings();
  const std::lock_guard lock(shared.mutex);
  for (size_t i = 0; i < kMostMappings; i++) {
    Mapping& mapping = shared.all[i];
    if (mapping.begin != 0) continue;
    mapping.has_lost_pages = false;
    mapping.path = &path;
    mapping.end = reinterpret_cast<uintptr_t>(begin) + (size + page_size() - 1) / page_size() * page_size();
    mapping.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
    shared.used.store(std::max(shared.used.load(), i + 1), std::memory_order_release);
    return;
  }
}

bool is_in_mapping(uintptr_t begin, uintptr_t end) {
  Mappings& shared = mappings();
  const std::lock_guard lock(shared.mutex);
  const auto first = shared.all.begin();
  return std::any_of(first, first + static_cast<std::ptrdiff_t>(shared.used.load()), [&](const Mapping& mapping) {
    return mapping.begin != 0 && mapping.begin <= begin && end <= mapping.end;
  });
}

std::string mapped_path(const void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  Mappings& shared = mappings();
  const std::lock_guard lock(shared.mutex);
  for (size_t i = 0; i < shared.used; i++) {
    const Mapping& mapping = shared.all[i];
    if (mapping.begin != 0 && mapping.begin <= number && number < mapping.end) return *mapping.path;
  }
  return {};
}

void unregister_mapping(char* begin) {
  Mappings& shared = mappings();
  const std::lock_guard lock(shared.mutex);
  for (size_t i = 0; i < shared.used; i++) {
    Mapping& mapping = shared.all[i];
    if (mapping.begin != reinterpret_cast<uintptr_t>(begin)) continue;
    if (mapping.has_lost_pages && shared.guards > 0) shared.lost = *mapping.path;
    mapping.begin = 0;
    return;
  }
}

}  // namespace accel
