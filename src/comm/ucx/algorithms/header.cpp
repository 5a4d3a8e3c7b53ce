// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/header.hpp"

#include <algorithm>
#include <cstring>

#include "base/current_call.hpp"
#include "base/error.hpp"

namespace accel::comm::ucx {
namespace {

std::string contents(const Header& header) {
  if (header.dtype < 0) return "no tensor";
  const auto dtype = dtype_name(static_cast<c10::ScalarType>(header.dtype));
  if (traits_of(header.kind).shapes_may_differ() && header.dimensions == 0) return dtype;
  std::string shape;
  const int shown = std::min<int>(header.dimensions, Header::kShownDimensions);
  for (int i = 0; i < shown; i++) shape += text(i ? ", " : "", header.sizes[i]);
  if (header.dimensions > shown)
    shape += text(", ...; ", header.numel, " elements in ", int{header.dimensions}, " dimensions");
  return text(dtype, "[", shape, "]");
}

// A barrier is also what a rank without tensors sends where others send tensors.
std::string part_of(const Header& header) {
  const char* const called = traits_of(header.kind).name;
  if (header.kind == CollectiveKind::kBarrier) return text("called ", called, " or passed no tensor");
  return text("called ", called, " of ", contents(header));
}

double factor_of(const Header& header) { return header.reduction == ReduceOp::kScaledSum ? header.factor : 1; }

std::string details(const Header& header, const Header& other) {
  std::string line = contents(header);
  if (header.reduction != other.reduction) line += text(" (", reduction_name(header.reduction), ")");
  if (factor_of(header) != factor_of(other)) line += text(" times ", factor_of(header));
  if (header.root != other.root) line += text(" with root ", header.root);
  if (header.parts != other.parts) line += text(" as one of ", header.parts);
  return line;
}

}  // namespace

std::string dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Char:
      return "int8";
    case c10::ScalarType::Short:
      return "int16";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    case c10::ScalarType::UInt16:
      return "uint16";
    case c10::ScalarType::UInt32:
      return "uint32";
    case c10::ScalarType::UInt64:
      return "uint64";
    case c10::ScalarType::Bool:
      return "bool";
    case c10::ScalarType::ComplexHalf:
      return "complex32";
    case c10::ScalarType::ComplexFloat:
      return "complex64";
    case c10::ScalarType::ComplexDouble:
      return "complex128";
    default: {
      std::string name = c10::toString(dtype);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      return name;
    }
  }
}

bool are_equal(const Header& first, const Header& second) {
  return std::memcmp(&first, &second, sizeof(Header)) == 0;  // NOLINT(bugprone-suspicious-memory-comparison)
}

std::string title(const Header& header, const char* call) {
  return text(call_name(call, traits_of(header.kind).name), " #", header.sequence);
}

std::string find_mismatch(const std::vector<const Header*>& headers, const JobRanks& job_ranks) {
  const Header& first = *headers[0];
  for (size_t rank = 1; rank < headers.size(); rank++) {
    const Header& other = *headers[rank];
    if (are_equal(first, other)) continue;
    const int number = job_ranks[0], other_number = job_ranks[static_cast<int>(rank)];
    if (first.kind != other.kind)
      return text("collective #", first.sequence, ": rank ", number, " ", part_of(first), ", rank ", other_number, " ",
                  part_of(other), "; all ranks must make the same calls in the same order");
    return text(title(first), ": rank ", number, " has ", details(first, other), ", rank ", other_number, " has ",
                details(other, first), "; all ranks must pass the same shape, dtype and options");
  }
  return {};
}

}  // namespace accel::comm::ucx
