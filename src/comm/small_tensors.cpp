// SPDX-License-Identifier: Apache-2.0
#include "comm/small_tensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <string>

#include "base/error.hpp"
#include "comm/job_rank.hpp"
#include "tensor/access.hpp"
#include "tensor/dtype.hpp"

namespace accel::comm {
namespace {

constexpr size_t kLargest = 8192;

// "float32[3, 2], int64[1]"
std::string describe(const std::vector<at::Tensor>& tensors) {
  std::string line;
  for (const at::Tensor& tensor : tensors)
    line += text(line.empty() ? "" : ", ", tensor::dtype_name(tensor.scalar_type()), tensor.sizes());
  return line;
}

// Messages of equal size may have different shapes, so each begins with a fingerprint of the shapes.
uint64_t fingerprint(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](int64_t number) {
    for (int byte = 0; byte < 8; byte++)
      hash = (hash ^ (static_cast<uint64_t>(number) >> 8 * byte & 0xff)) * 0x100000001b3;
  };
  for (const at::Tensor& tensor : tensors) {
    add(static_cast<int64_t>(tensor.scalar_type()));
    add(tensor.dim());
    for (const int64_t size : tensor.sizes()) add(size);
  }
  return hash;
}

size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

// Copies them one after the other, from `place` on.
void pack(const std::vector<at::Tensor>& tensors, char* place) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() != 0) std::memcpy(place, tensor.const_data_ptr(), tensor.nbytes());
    place += tensor.nbytes();
  }
}

void unpack(const char* place, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() != 0) std::memcpy(tensor.data_ptr(), place, tensor.nbytes());
    tensor::count_write(tensor);
    place += tensor.nbytes();
  }
}

// The fingerprints of all ranks, with the tensors if they are in the same message.
struct Exchange {
  Exchange(const Communicator& communicator, const std::vector<at::Tensor>& tensors, bool sent_along)
      : tensors(tensors),
        rank(communicator.rank()),
        size(communicator.size()),
        job_ranks(comm::job_ranks(communicator)) {
    const uint64_t shapes = fingerprint(tensors);
    const auto bytes = static_cast<int64_t>(sizeof(shapes) + (sent_along ? bytes_of(tensors) : 0));
    own = at::empty({bytes}, at::kByte);
    std::memcpy(own.data_ptr(), &shapes, sizeof(shapes));
    if (sent_along) pack(tensors, static_cast<char*>(own.data_ptr()) + sizeof(shapes));
    all = at::empty({size, bytes}, at::kByte);
    std::memset(all.data_ptr(), 0, sizeof(shapes));
  }

  int job_rank(int one) const { return job_ranks.empty() ? one : job_ranks[static_cast<size_t>(one)]; }
  const char* row(int of) const { return static_cast<const char*>(all.const_data_ptr()) + of * all.size(1); }

  // Throws on all ranks if the fingerprints differ. `error` is that of the round, whose other collectives may have
  // failed for the same reason.
  void check(const std::exception_ptr& error) const {
    constexpr size_t kBytes = sizeof(uint64_t);
    const bool arrived = std::memcmp(row(rank), own.const_data_ptr(), kBytes) == 0;
    for (int other = 1; arrived && other < size; other++)
      if (std::memcmp(row(other), row(0), kBytes) != 0)
        throw CollectiveError(
            CollectiveFailure::kMismatch, rank,
            text("rank ", job_rank(other), " has other shapes or dtypes than rank ", job_rank(0), "; rank ",
                 job_rank(rank), " has ", describe(tensors), "; all ranks must pass the same tree"));
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const CollectiveError& failure) {
      if (arrived || failure.failure() != CollectiveFailure::kMismatch) throw;
      throw CollectiveError(failure.failure(), failure.rank(),
                            text(failure.what(), "; the small tensors of rank ", job_rank(rank),
                                 " are sent in one message: ", describe(tensors)));
    }
  }

  std::vector<at::Tensor> tensors;
  int rank, size;
  std::vector<int> job_ranks;
  at::Tensor own, all;  // a row a rank
};

}  // namespace

bool is_small(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.nbytes() <= kLargest;
}

SmallTensors gather_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors) {
  const Exchange exchange(communicator, tensors, /*sent_along=*/true);
  return {{Collective::all_gather(exchange.own, exchange.all)}, [exchange](const std::exception_ptr& error) {
            exchange.check(error);
            std::vector<at::Tensor> joined;
            size_t offset = sizeof(uint64_t);
            for (const at::Tensor& tensor : exchange.tensors) {
              std::vector<int64_t> shape = tensor.sizes().vec();
              shape[0] *= exchange.size;
              joined.push_back(at::empty(shape, tensor.options()));
              char* const goal = static_cast<char*>(joined.back().data_ptr());
              for (int rank = 0; rank < exchange.size && tensor.nbytes() != 0; rank++)
                std::memcpy(goal + rank * tensor.nbytes(), exchange.row(rank) + offset, tensor.nbytes());
              offset += tensor.nbytes();
            }
            return joined;
          }};
}

SmallTensors reduce_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors,
                          const std::function<Collective(const at::Tensor&)>& reduce,
                          const std::function<void(const at::Tensor&)>& finish) {
  struct Joined {
    std::vector<at::Tensor> parts;
    at::Tensor whole;
  };
  const Exchange exchange(communicator, tensors, /*sent_along=*/false);
  SmallTensors call{{Collective::all_gather(exchange.own, exchange.all)}, {}};
  std::vector<at::Tensor> reduced;
  std::map<c10::ScalarType, Joined> by_dtype;  // in the same order on all ranks
  for (const at::Tensor& tensor : tensors) {
    reduced.push_back(tensor.detach().clone(at::MemoryFormat::Contiguous));
    by_dtype[tensor.scalar_type()].parts.push_back(reduced.back());
  }
  for (auto& [dtype, joined] : by_dtype) {
    const auto count = static_cast<int64_t>(bytes_of(joined.parts) / c10::elementSize(dtype));
    joined.whole = at::empty({count}, dtype);
    pack(joined.parts, static_cast<char*>(joined.whole.data_ptr()));
    call.collectives.push_back(reduce(joined.whole));
  }
  call.finish = [exchange, reduced, by_dtype, finish](const std::exception_ptr& error) {
    exchange.check(error);
    for (const auto& [dtype, joined] : by_dtype) {
      finish(joined.whole);
      unpack(static_cast<const char*>(joined.whole.const_data_ptr()), joined.parts);
    }
    return reduced;
  };
  return call;
}

SmallTensors broadcast_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors, int from) {
  const Exchange exchange(communicator, tensors, /*sent_along=*/false);
  const at::Tensor joined = at::empty({static_cast<int64_t>(bytes_of(tensors))}, at::kByte);
  const bool receives = communicator.rank() != from;
  if (!receives) pack(tensors, static_cast<char*>(joined.data_ptr()));
  return {{Collective::all_gather(exchange.own, exchange.all), Collective::broadcast(joined, from)},
          [exchange, joined, receives](const std::exception_ptr& error) {
            exchange.check(error);
            if (receives) unpack(static_cast<const char*>(joined.const_data_ptr()), exchange.tensors);
            return exchange.tensors;
          }};
}

}  // namespace accel::comm
