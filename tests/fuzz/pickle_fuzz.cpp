// SPDX-License-Identifier: Apache-2.0
// Any bytes as a pickle of a file of torch.save(): an error that says what is wrong, or a value whose tensors lie in
// their storages. A value without tensors comes back the same when it is written again.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/torch/pickle_reader.hpp"
#include "checkpoint/formats/torch/pickle_writer.hpp"
#include "checkpoint/formats/torch/torch_tensors.hpp"
#include "fuzz_target.hpp"
#include "tensor/tree.hpp"

namespace pickle_fuzz {

using namespace accel;
using namespace accel::checkpoint;

namespace {

// Each persistent id is the same small storage, of the type that the id names.
PickleNode small_storage(const PickleItems& id) {
  static const at::Tensor bytes = at::empty({64}, at::kByte).fill_(1);
  for (const PickleNode* part : id)
    if (part->name() != nullptr)
      if (const auto dtype = storage_dtype(*part->name())) return {PickledStorage{bytes.storage(), *dtype}};
  fail(Status::kCorrupt, "no storage");
}

std::string pickle_of(const c10::IValue& value) {
  return PickleWriter([](const at::Tensor&, PickleStream&) { check(false); }).pickle(value);
}

bool has_tensors(const c10::IValue& value) {
  bool found = false;
  tree::for_each_tensor(value, [&](const at::Tensor& tensor) {
    found = true;
    constexpr int64_t kMostElements = 4096;  // one element may stand for many
    if (tensor.numel() > 0 && tensor.numel() <= kMostElements) tensor.clone();
  });
  return found;
}

void read(std::string_view bytes, const RecordClasses* records, bool skips_unknown = false) {
  try {
    PickleReader reader(bytes, "input", {small_storage, records, skips_unknown});
    const c10::IValue value = reader.value_of(reader.read());
    if (has_tensors(value) || records != nullptr) return;
    std::string written;
    try {
      written = pickle_of(value);
    } catch (const Error& error) {
      check(error.status() == Status::kInvalidArgument);  // '$bytes' alone
      return;
    }
    PickleReader again(written, "written", {});
    check(pickle_of(again.value_of(again.read())) == written);
  } catch (const Error& error) {
    check(error.status() == Status::kCorrupt || error.status() == Status::kUnsupported);
    check(error.message().find("'input'") != std::string::npos && error.message().find('\n') == std::string::npos);
  }
}

}  // namespace

FUZZ_TARGET(pickle) {
  constexpr std::string_view kNames[] = {"a.B", "os.system", "torch.distributed.checkpoint.metadata.Metadata"};
  const RecordClasses records = {kNames, std::size(kNames)};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes, nullptr);
  read(bytes, &records);
  read(bytes, nullptr, /*skips_unknown=*/true);
  read(bytes, &records, /*skips_unknown=*/true);
  return 0;
}

}  // namespace pickle_fuzz
