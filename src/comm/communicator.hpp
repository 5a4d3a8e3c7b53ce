// A group of ranks and its collectives on bare tensors: what c10d offers, without its dispatcher on the way of blocking
// calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace accel::comm {

enum class Reduction : int32_t { kSum, kMean, kMin, kMax, kProduct, kAnd, kOr, kXor };

// Blocking calls; all ranks make the same ones in the same order, from one thread at a time. Tensors must be
// contiguous. With one rank nothing is sent, and the same checks apply.
class Communicator {
 public:
  // One rank, no backend.
  Communicator();
  Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
               const std::string& backend_name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& backend_name() const { return backend_name_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // For c10d::Reducer; null with one rank.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const { return process_group_; }

  void all_reduce(at::Tensor tensor, Reduction reduction);
  void broadcast(at::Tensor tensor, int from);
  void all_gather(const at::Tensor& input, at::Tensor output);
  void reduce_scatter(const at::Tensor& input, Reduction reduction, at::Tensor output);
  void all_to_all(const at::Tensor& input, at::Tensor output);
  void scatter(const at::Tensor& input, int from, at::Tensor output);  // input counts on rank `from` only
  void send(const at::Tensor& tensor, int to, int tag);
  void receive(at::Tensor tensor, int from, int tag);
  void barrier();

  // Leaves the group; later calls fail.
  void shutdown();

 private:
  c10d::Backend& backend();
  void check_rank(int rank, const char* name) const;

  int rank_ = 0;
  int size_ = 1;
  bool left_ = false;
  std::chrono::milliseconds timeout_{0};
  std::string backend_name_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
};

}  // namespace accel::comm
