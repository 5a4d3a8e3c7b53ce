#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/object_message.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace {

// What each rank tells the others first: how much it has, and that itself where it fits.
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

std::vector<Announcement> announce(Communicator& communicator, const std::string& message, uint64_t items) {
  Announcement own;
  own.items = items;
  own.bytes = message.size();
  if (own.whole()) std::memcpy(own.message, message.data(), message.size());
  const at::Tensor rows = gather_rows(communicator, bytes_of(&own, sizeof own));
  std::vector<Announcement> all(communicator.size());
  std::memcpy(all.data(), rows.const_data_ptr(), rows.nbytes());
  return all;
}

}  // namespace

std::vector<std::string> gather_bytes(Communicator& communicator, const std::string& own) {
  if (communicator.size() == 1) return {own};
  const auto all = announce(communicator, own, 0);
  std::vector<std::string> messages;
  if (std::all_of(all.begin(), all.end(), [](const Announcement& one) { return one.whole(); })) {
    for (const Announcement& one : all) messages.emplace_back(one.message, one.bytes);
    return messages;
  }
  uint64_t longest = 0;
  for (const Announcement& one : all) longest = std::max(longest, one.bytes);
  std::string padded = own;
  padded.resize(longest);
  const at::Tensor rows = gather_rows(communicator, bytes_of(padded.data(), longest));
  const char* row = static_cast<const char*>(rows.const_data_ptr());
  for (const Announcement& one : all) {
    messages.emplace_back(row, one.bytes);
    row += longest;
  }
  return messages;
}

c10::IValue gather_object(Communicator& communicator, const c10::IValue& object) {
  const std::string own = encode_object(object);
  auto all = tree::new_list();
  for (const std::string& message : gather_bytes(communicator, own)) {
    c10::IValue item = decode_object(message);
    if (!tree::is_sequence(item)) {
      all.push_back(std::move(item));
      continue;
    }
    for (const c10::IValue& element : tree::sequence_items(item)) all.push_back(element);
  }
  return all;
}

c10::IValue broadcast_object_list(Communicator& communicator, const c10::IValue& objects, int from) {
  require(tree::is_sequence(objects), Status::kTypeMismatch, "objects is no list; expected a list of values");
  require(from >= 0 && from < communicator.size(), Status::kInvalidArgument, "from_process is ", from,
          "; expected 0 to ", communicator.size() - 1);
  const bool source = communicator.rank() == from;
  const std::string own = source ? encode_object(objects) : std::string();
  if (communicator.size() == 1) return objects;
  const auto all = announce(communicator, own, tree::sequence_items(objects).size());
  for (int rank = 0; rank < communicator.size(); rank++)
    require(all[rank].items == all[0].items, Status::kCollectiveMismatch, "the list has ", all[0].items,
            " items on rank 0 and ", all[rank].items, " on rank ", rank, "; expected the same length everywhere");
  if (source && all[from].whole()) return objects;
  if (all[from].whole()) return decode_object({all[from].message, all[from].bytes});
  at::Tensor bytes =
      source ? bytes_of(own.data(), own.size()) : at::empty({static_cast<int64_t>(all[from].bytes)}, at::kByte);
  bytes = bytes.to(communicator.device());
  communicator.broadcast(bytes, from);
  if (source) return objects;
  bytes = bytes.cpu();
  return decode_object({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

}  // namespace accel::comm
