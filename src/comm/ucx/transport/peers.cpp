// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/transport/peers.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <new>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/record/collected_values.hpp"
#include "comm/ucx/host/host_segment.hpp"
#include "comm/ucx/host/peer_memory.hpp"
#include "comm/ucx/host/shared_mapping.hpp"
#include "comm/ucx/host/status_page.hpp"
#include "comm/ucx/transport/transport.hpp"
#include "os/read_line.hpp"

namespace accel::comm::ucx {
namespace {

// Published by each rank, followed by its address. Read only by the same version of the library.
struct PeerInfo {
  char version[32] = {};
  char host[64] = {};
  uint64_t process_namespace = 0;
  int32_t process = 0;
  int32_t region = -1;       // file descriptor of its host segment, which begins with the nonce
  int32_t status_page = -1;  // and of its status page, likewise
  uint32_t group_number = 0;
  int32_t job_rank = 0;
  bool is_numbered_anew = false;
  uint64_t nonce = 0;
  uint64_t nonce_address = 0;  // in the memory of its process; 0: it is not to be read
  cpu_set_t cores;
};

// The later time limit of store operations: no deadline may be missed because the store does not answer.
constexpr auto kStoreAnswers = Deadline::Milliseconds(250);

template <size_t size>
void copy_text(char (&to)[size], const std::string& from) {
  std::strncpy(to, from.c_str(), size - 1);
}

PeerInfo own_info(const std::string& version) {
  PeerInfo info;
  copy_text(info.version, version);
  // The boot id identifies a host even when containers have the same name. ACCEL_HOST_ID replaces it: tests need two
  // hosts on one machine.
  const char* const given = std::getenv("ACCEL_HOST_ID");
  std::string host = given != nullptr ? given : "";
  if (host.empty()) {
    std::ifstream number("/proc/sys/kernel/random/boot_id");
    read_line(number, host);
  }
  if (host.empty())
    gethostname(info.host, sizeof(info.host) - 1);
  else
    copy_text(info.host, host);
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) info.process_namespace = status.st_ino;
  info.process = getpid();
  info.nonce = std::random_device()() | (static_cast<uint64_t>(std::random_device()()) << 32);
  CPU_ZERO(&info.cores);
  if (sched_getaffinity(0, sizeof(info.cores), &info.cores) != 0) CPU_SET(0, &info.cores);
  return info;
}

FileDescriptor watch_process(int process) {
#ifdef SYS_pidfd_open
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
#else
  return FileDescriptor();
#endif
}

// Whether collectives pass through the host segment (host_segment.hpp) where they can.
bool wants_segment() {
  const char* const wanted = std::getenv("ACCEL_SHARED_MEMORY");
  return wanted == nullptr || std::string_view(wanted) != "0";
}

// An anonymous file: zeros after the nonce. A peer that reads the nonce can open this process's files.
FileDescriptor make_file(uint64_t nonce, size_t size) {
  FileDescriptor file(memfd_create("accel", MFD_CLOEXEC));
  const bool made = write(file.number(), &nonce, sizeof(nonce)) == sizeof(nonce) &&
                    ftruncate(file.number(), static_cast<off_t>(size)) == 0;
  return made ? std::move(file) : FileDescriptor();
}

bool has_in_memory(const PeerInfo& info) {
  uint64_t found = 0;
  return info.nonce_address != 0 && read_memory(info.process, info.nonce_address, &found, sizeof(found)) &&
         found == info.nonce;
}

bool begins_with(const FileDescriptor& file, uint64_t nonce) {
  uint64_t found = 0;
  return pread(file.number(), &found, sizeof(found), 0) == sizeof(found) && found == nonce;
}

std::string key_of(const std::string& prefix, int rank) { return text(prefix, rank); }

// Null if the key came in time, otherwise the store's exception about the deadline, whose type depends on the store.
// Other errors have known types and are thrown: a failed start of the job, lack of memory, errors of our store.
std::exception_ptr wait_for_key(c10d::Store& store, const std::string& key, const Deadline& deadline) {
  try {
    store.wait({key}, std::max(deadline.left(), Deadline::Milliseconds(1)));
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Error& error) {
    if (error.status() != Status::kTimeout) throw;
    return std::current_exception();
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

std::vector<std::string> keys_of(const std::string& prefix, int size) {
  std::vector<std::string> keys;
  for (int peer = 0; peer < size; peer++) keys.push_back(key_of(prefix, peer));
  return keys;
}

std::string missing_ranks(c10d::Store& store, const std::string& prefix, int size) {
  std::string missing;
  for (int peer = 0; peer < size; peer++)
    if (!store.check({key_of(prefix, peer)})) missing += text(missing.empty() ? "" : ", ", peer);
  return missing;
}

}  // namespace

Peers::Peers(const c10::intrusive_ptr<c10d::Store>& store, const std::string& group, int rank, int size, int job_rank,
             bool is_numbered_anew, const std::string& version, const std::string& address, uint32_t number,
             const Deadline& deadline)
    : rank_(rank), prefix_("accel/ucx/" + group + "/"), peers_(size), hosts_(Hosts::of_single_ranks(size, rank)) {
  PeerInfo own = own_info(version);
  own.group_number = number;
  own.job_rank = job_rank;
  own.is_numbered_anew = is_numbered_anew;
  own_.nonce = std::make_unique<const uint64_t>(own.nonce);
  if (wants_segment()) own.nonce_address = reinterpret_cast<uintptr_t>(own_.nonce.get());
  if (wants_segment()) own_.region = make_file(own.nonce, HostSegment::file_size());
  own_.status_page = make_file(own.nonce, StatusPage::kBytes);
  own.region = own_.region.number();
  own.status_page = own_.status_page.number();
  std::vector<uint8_t> record(sizeof(PeerInfo) + address.size());
  std::memcpy(record.data(), &own, sizeof(PeerInfo));
  std::memcpy(record.data() + sizeof(PeerInfo), address.data(), address.size());
  store->set(key_of(prefix_, rank), record);
  const std::string all = prefix_ + "all_published";
  if (store->add(prefix_ + "published", 1) == size) store->set(all, collect_values(*store, keys_of(prefix_, size)));

  if (const auto late = wait_for_key(*store, all, deadline)) {
    const auto missing = missing_ranks(*store, prefix_, size);
    if (missing.empty()) std::rethrow_exception(late);  // the store itself failed
    throw CollectiveError(CollectiveFailure::kTimeout, rank,
                          text("the group did not form within ", deadline.total().count(), " ms: no sign of rank ",
                               missing, "; start all ", size, " ranks or raise the timeout"));
  }
  CollectedValues records(store->get(all));

  cpu_set_t cores = own.cores;
  int local = 0;
  std::map<std::string, size_t> names;  // host name to index
  std::vector<std::vector<int>> hosts;
  std::vector<int> job_ranks(static_cast<size_t>(size));
  for (int peer = 0; peer < size; peer++) {
    PeerInfo info;
    const auto [bytes, size_of_record] = records.next();
    if (size_of_record < sizeof(PeerInfo))
      throw CollectiveError(
          CollectiveFailure::kInvalid, rank,
          text("rank ", peer, " runs another version of the communication plugin; install one on all hosts"));
    std::memcpy(&info, bytes, sizeof(PeerInfo));
    if (std::strncmp(info.version, own.version, sizeof(own.version)) != 0)
      throw CollectiveError(CollectiveFailure::kInvalid, rank,
                            text("rank ", info.job_rank, " uses UCX ", info.version, " and rank ", job_rank,
                                 " uses UCX ", own.version, "; install one version on all hosts"));
    peers_[peer].address.assign(bytes + sizeof(PeerInfo), bytes + size_of_record);
    peers_[peer].same_host = std::strcmp(info.host, own.host) == 0;
    peers_[peer].group_number = info.group_number;
    job_ranks[static_cast<size_t>(peer)] = info.job_rank;
    is_numbered_anew = is_numbered_anew || info.is_numbered_anew;
    peers_[peer].process = info.process;
    const bool visible = peers_[peer].same_host && info.process_namespace == own.process_namespace;
    const size_t host = names.try_emplace(info.host, hosts.size()).first->second;
    if (host == hosts.size()) hosts.emplace_back();
    hosts[host].push_back(peer);
    if (!peers_[peer].same_host) continue;
    if (reach_.files && visible && info.region >= 0) peers_[peer].region = open_file_of(info.process, info.region);
    reach_.files = reach_.files && begins_with(peers_[peer].region, info.nonce);
    const FileDescriptor page = visible ? open_file_of(info.process, info.status_page) : FileDescriptor();
    if (begins_with(page, info.nonce)) peers_[peer].status_page = std::make_unique<StatusPage>(page.number(), rank);
    local++;
    CPU_OR(&cores, &cores, &info.cores);
    const bool is_other = info.process != own.process;
    if (visible && is_other) peers_[peer].process_end = watch_process(info.process);
    // Without a watch, a process that has ended could be taken for another one with its number.
    const bool is_watched = !is_other || peers_[peer].process_end.is_open();
    // The page says when a rank has given up its calls, after which it may use their tensors again.
    reach_.memory =
        reach_.memory && visible && is_watched && peers_[peer].status_page != nullptr && has_in_memory(info);
  }
  cores_suffice_ = local <= CPU_COUNT(&cores);
  hosts_ = Hosts(std::move(hosts), rank);
  if (is_numbered_anew) std::iota(job_ranks.begin(), job_ranks.end(), 0);
  const int own_job_rank = job_ranks[static_cast<size_t>(rank)];
  job_ranks_ = JobRanks(std::move(job_ranks), own_job_rank);
  store_ = store->clone();
}

Peers::Peers(Peers&&) noexcept = default;
Peers::~Peers() = default;

bool Peers::has_other_hosts() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.same_host; });
}

std::vector<int> Peers::regions() const {
  std::vector<int> files;
  for (const int peer : hosts_.neighbours().ranks) files.push_back(peers_[peer].region.number());
  return files;
}

bool Peers::wait_until_all_connected(bool has_segment, const Deadline& deadline) {
  for (Peer& peer : peers_) peer.region = FileDescriptor();  // mapped by now, or not wanted
  // One counter for all: the number of connected ranks, of those without a segment, and of those that cannot read the
  // memory of their neighbours.
  constexpr int64_t kMost = kMaxRanks + 1;
  const int64_t counts = 1 + (has_segment ? 0 : kMost) + (reach_.memory ? 0 : kMost * kMost);
  const int64_t told = store_->add(prefix_ + "connected", counts);
  const std::string all = prefix_ + "all_connected";
  if (told % kMost == size())
    store_->set(all,
                text("all", told / kMost % kMost == 0 ? " segment" : "", told / kMost / kMost == 0 ? " memory" : ""));
  if (wait_for_key(*store_, all, deadline) != nullptr)
    throw CollectiveError(CollectiveFailure::kTimeout, rank_,
                          text("the group did not form within ", deadline.total().count(), " ms: one of ", size(),
                               " ranks ended, or did not connect to the others; start all again"));
  const std::string found = store_->get_to_str(all);
  const bool all_have_segment = found.find("segment") != std::string::npos;
  reach_.memory = found.find("memory") != std::string::npos;
  store_->setTimeout(kStoreAnswers);  // from now on it only explains failures
  if (!all_have_segment) hosts_ = Hosts::of_single_ranks(size(), rank_);
  return all_have_segment;
}

std::optional<Failure> Peers::published_failure() {
  try {
    const std::string key = prefix_ + "failure";
    if (!store_->check({key})) return std::nullopt;
    const std::string record = store_->get_to_str(key);
    const size_t first = record.find(' '), second = record.find(' ', first + 1);
    if (second == std::string::npos) return std::nullopt;
    return Failure{static_cast<CollectiveFailure>(std::stoi(record)), std::stoi(record.substr(first)),
                   record.substr(second + 1)};
  } catch (const std::exception&) {
    return std::nullopt;  // without the store, deadlines and process handles still detect failures
  }
}

void Peers::publish_failure(const Failure& failure) {
  try {
    store_->compareSet(prefix_ + "failure", "",
                       text(static_cast<int>(failure.kind), " ", failure.rank, " ", failure.message));
  } catch (const std::exception&) {  // as above: the peers have their own deadlines
  }
}

std::map<int, std::string> Peers::calls() {
  constexpr auto kOthersAsk = Deadline::Milliseconds(500);
  const auto key = [this](int peer) { return text(prefix_, "call/", peer); };
  std::map<int, std::string> calls;
  std::vector<int> unknown;
  for (int peer = 0; peer < size(); peer++)
    if (const StatusPage* const page = this->status_page(peer))
      calls[peer] = page->call();
    else
      unknown.push_back(peer);
  if (unknown.empty()) return calls;
  try {
    for (const auto& [peer, call] : calls) store_->set(key(peer), call);
    std::vector<std::string> keys;
    for (const int peer : unknown) keys.push_back(key(peer));
    try {
      store_->wait(keys, kOthersAsk);
    } catch (const std::exception&) {  // not all of them
    }
    for (const int peer : unknown)
      if (store_->check({key(peer)})) calls[peer] = store_->get_to_str(key(peer));
  } catch (const std::exception&) {  // without the store, only local ranks are known
  }
  return calls;
}

}  // namespace accel::comm::ucx
