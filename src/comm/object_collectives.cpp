// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <type_traits>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/object_message.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace {

// The first message of each rank: its size, and its content if that is small.
struct Announcement {
  static constexpr size_t kRoom = 496;

  uint64_t items = 0;
  uint64_t bytes = 0;
  char message[kRoom] = {};

  bool whole() const { return bytes <= kRoom; }
};
static_assert(std::is_trivially_copyable_v<Announcement> && sizeof(Announcement) == 512);

at::Tensor bytes_of(const void* data, size_t size) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
  if (size != 0) std::memcpy(bytes.data_ptr(), data, size);
  return bytes;
}

Round announce(const Communicator& communicator, const std::string& message, uint64_t items,
               const std::function<Outcome(const std::vector<Announcement>&)>& then) {
  Announcement own;
  own.items = items;
  own.bytes = message.size();
  if (own.whole()) std::memcpy(own.message, message.data(), message.size());
  const auto read = [then](const at::Tensor& rows) {
    std::vector<Announcement> all(static_cast<size_t>(rows.size(0)));
    std::memcpy(all.data(), rows.const_data_ptr(), rows.nbytes());
    return then(all);
  };
  return rounds::gather_rows(communicator, bytes_of(&own, sizeof own), read, /*is_last=*/false);
}

}  // namespace

namespace rounds {

Round gather_bytes(const Communicator& communicator, const std::string& own,
                   const std::function<Outcome(const std::vector<std::string>&)>& then) {
  if (communicator.size() == 1)
    return {{}, [own, then](const std::exception_ptr&) { return then({own}); }, /*is_last=*/false};
  return announce(communicator, own, 0, [&communicator, own, then](const std::vector<Announcement>& all) -> Outcome {
    std::vector<std::string> messages;
    if (std::all_of(all.begin(), all.end(), [](const Announcement& one) { return one.whole(); })) {
      for (const Announcement& one : all) messages.emplace_back(one.message, one.bytes);
      return then(messages);
    }
    uint64_t longest = 0;
    for (const Announcement& one : all) longest = std::max(longest, one.bytes);
    std::string padded = own;
    padded.resize(longest);
    const auto cut = [all, longest, then](const at::Tensor& rows) {
      std::vector<std::string> parts;
      const char* row = static_cast<const char*>(rows.const_data_ptr());
      for (const Announcement& one : all) {
        parts.emplace_back(row, one.bytes);
        row += longest;
      }
      return then(parts);
    };
    return gather_rows(communicator, bytes_of(padded.data(), longest), cut, /*is_last=*/false);
  });
}

Round gather_object(const Communicator& communicator, const c10::IValue& object) {
  return gather_bytes(communicator, encode_object(object), [](const std::vector<std::string>& messages) -> Outcome {
    auto all = tree::new_list();
    for (const std::string& message : messages) {
      c10::IValue item = decode_object(message);
      if (!tree::is_sequence(item)) {
        all.push_back(std::move(item));
        continue;
      }
      for (const c10::IValue& element : tree::sequence_items(item)) all.push_back(element);
    }
    return c10::IValue(all);
  });
}

Round broadcast_object_list(const Communicator& communicator, const c10::IValue& objects, int from) {
  require(tree::is_sequence(objects), Status::kTypeMismatch, "objects is not a list; expected a list of values");
  check_rank(from, communicator.size(), "from_process");
  const bool source = communicator.rank() == from;
  const std::string own = source ? encode_object(objects) : std::string();
  if (communicator.size() == 1) return Round(objects);
  const auto send = [&communicator, objects, from, source, own](const std::vector<Announcement>& all) -> Outcome {
    for (int rank = 0; rank < communicator.size(); rank++)
      require(all[rank].items == all[0].items, Status::kCollectiveMismatch, "the list has ", all[0].items,
              " items on rank 0 and ", all[rank].items, " on rank ", rank, "; expected the same length everywhere");
    if (source && all[from].whole()) return objects;
    if (all[from].whole()) return decode_object({all[from].message, all[from].bytes});
    at::Tensor bytes =
        source ? bytes_of(own.data(), own.size()) : at::empty({static_cast<int64_t>(all[from].bytes)}, at::kByte);
    bytes = bytes.to(communicator.device());
    return Round({Collective::broadcast(bytes, from)},
                 [objects, source, bytes](const std::exception_ptr& error) -> Outcome {
                   rethrow(error);
                   if (source) return objects;
                   const at::Tensor arrived = bytes.cpu();
                   return decode_object({static_cast<const char*>(arrived.const_data_ptr()), arrived.nbytes()});
                 });
  };
  return announce(communicator, own, tree::sequence_items(objects).size(), send);
}

}  // namespace rounds
}  // namespace accel::comm
