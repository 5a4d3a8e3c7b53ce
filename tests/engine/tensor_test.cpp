// SPDX-License-Identifier: Apache-2.0
// Dtypes, devices, memory, access and DLPack.
#include <ATen/DLConvertor.h>
#include <ATen/core/Tensor.h>
#include <ATen/dlpack.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "tensor/access.hpp"
#include "tensor/autograd/loss.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/dlpack.hpp"
#include "tensor/dtype.hpp"

namespace accel::tensor {
namespace tensor_test {

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

template <typename Call>
void expect_failure(Call call, Status status, const std::string& part) {
  tests::expect_error(status, part, call);
}

// Counts how often it is given back.
std::shared_ptr<void> counted(int& count) {
  return std::shared_ptr<void>(&count, [](void* counter) { ++*static_cast<int*>(counter); });
}

TEST(TensorDtype, TableAgreesWithLibTorch) {
  for (const Dtype& dtype : kDtypes) {
    EXPECT_EQ(dtype.size, c10::elementSize(dtype.type)) << dtype.name;
    EXPECT_EQ(find_dtype(dtype.number), &dtype);
    EXPECT_EQ(find_dtype(dtype.type), &dtype);
    EXPECT_EQ(find_dtype(std::string_view(dtype.name)), &dtype);
    for (const char* const alias : dtype.aliases) {
      if (alias == nullptr) continue;
      EXPECT_EQ(find_dtype(std::string_view(alias)), &dtype) << alias;
    }
    if (dtype.safetensors == nullptr) continue;
    EXPECT_EQ(find_safetensors_dtype(dtype.safetensors), &dtype);
  }
}

TEST(TensorDtype, RefusesWhatItLacks) {
  EXPECT_EQ(find_dtype(0), nullptr);
  EXPECT_EQ(find_dtype(22), nullptr);
  EXPECT_EQ(find_safetensors_dtype("float32"), nullptr);
  expect_failure([] { dtype_from_number(-3); }, Status::kInvalidArgument, "dtype -3");
  expect_failure([] { dtype_from_name("float31"); }, Status::kNotFound, "'float31'");
  expect_failure([] { dtype_number(c10::ScalarType::QInt8); }, Status::kUnsupported, "QInt8");
}

TEST(TensorDevice, ParsesNames) {
  EXPECT_EQ(parse_device("cpu"), c10::Device(kCpu));
  EXPECT_EQ(parse_device("cpu:0"), c10::Device(kCpu, 0));
  EXPECT_EQ(parse_device("cuda:3"), c10::Device(c10::DeviceType::CUDA, 3));
  EXPECT_EQ(parse_device("meta"), c10::Device(c10::DeviceType::Meta));
  for (const char* const text :
       {"", "CPU", "cpu:", "cpu:1", "cuda:-1", "cuda:128", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    expect_failure([&] { parse_device(text); }, Status::kInvalidArgument, text);
  }
}

TEST(TensorDevice, NumbersGoBothWays) {
  const c10::Device cuda(c10::DeviceType::CUDA, 1);
  const DeviceNumbers numbers = device_numbers(cuda);
  EXPECT_EQ(numbers.kind, static_cast<int32_t>(DeviceKind::kCuda));
  EXPECT_EQ(device_from_numbers(numbers), cuda);
  expect_failure([] { device_from_numbers({17, 0}); }, Status::kInvalidArgument, "device type 17");
  expect_failure([] { device_from_numbers({7, 0}); }, Status::kUnsupported, "npu");
  expect_failure([] { device_from_numbers({0, 1}); }, Status::kInvalidArgument, "device index 1 of cpu");
  expect_failure([] { device_from_numbers({1, -2}); }, Status::kInvalidArgument, "device index -2 of cuda");
  expect_failure([] { device_numbers(c10::Device(c10::DeviceType::Lazy, 0)); }, Status::kUnsupported, "lazy");
  EXPECT_EQ(device_count(DeviceKind::kCpu), 1);
  EXPECT_EQ(device_count(static_cast<DeviceKind>(99)), 0);
}

TEST(TensorMemory, RefusesImpossibleShapes) {
  const int64_t large = std::numeric_limits<int64_t>::max() / 2;
  expect_failure([] { empty({2, -1}, at::kFloat, kCpu); }, Status::kInvalidArgument, "size -1 of dimension 1");
  expect_failure([&] { empty({large, 2}, at::kFloat, kCpu); }, Status::kInvalidArgument, "more bytes");
  expect_failure([&] { empty({large, 0, large}, at::kByte, kCpu); }, Status::kInvalidArgument, "more bytes");
  expect_failure([] { shape_of(nullptr, 2); }, Status::kInvalidArgument, "shape is NULL");
  expect_failure([] { shape_of(nullptr, 65); }, Status::kInvalidArgument, "ndim is 65");
  expect_failure([] { randn({2}, at::kLong, kCpu); }, Status::kInvalidArgument, "int64");
  expect_failure([] { randint(3, 3, {2}); }, Status::kInvalidArgument, "[3, 3)");
  EXPECT_EQ(empty({0, 3}, at::kFloat, kCpu).sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(empty({2}, at::kFloat, c10::DeviceType::Meta).is_meta());
}

TEST(TensorMemory, CopiesData) {
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  const at::Tensor copied = from_data(numbers.data(), {2, 3}, at::kFloat);
  numbers[5] = 0;
  EXPECT_EQ(copied[1][2].item<float>(), 6);
  EXPECT_EQ(from_data(nullptr, {0}, at::kFloat).numel(), 0);
  expect_failure([] { from_data(nullptr, {2}, at::kFloat); }, Status::kInvalidArgument, "data is NULL");
}

TEST(TensorMemory, BlobLivesAsLongAsItsViews) {
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  int given_back = 0;
  at::Tensor view;
  {
    const int64_t strides[] = {1, 2};
    const at::Tensor blob = from_blob(numbers.data(), {2, 3}, strides, at::kFloat, kCpu, counted(given_back));
    EXPECT_EQ(blob[1][2].item<float>(), 6);
    EXPECT_EQ(blob[0][1].item<float>(), 3);
    view = blob[1];
  }
  EXPECT_EQ(given_back, 0);
  view.fill_(9);
  EXPECT_EQ(numbers[1], 9);
  view.reset();
  EXPECT_EQ(given_back, 1);
}

TEST(TensorMemory, RefusedBlobIsGivenBackOnce) {
  alignas(8) char bytes[64] = {};
  int given_back = 0;
  const auto refuse = [&](void* data, std::vector<int64_t> shape, std::vector<int64_t> strides, c10::Device device,
                          const std::string& part) {
    given_back = 0;
    expect_failure(
        [&] {
          from_blob(data, shape, strides.empty() ? nullptr : strides.data(), at::kFloat, device, counted(given_back));
        },
        Status::kInvalidArgument, part);
    EXPECT_EQ(given_back, 1) << part;
  };
  refuse(bytes, {-2}, {}, kCpu, "size -2");
  refuse(bytes, {2}, {-1}, kCpu, "stride -1");
  refuse(bytes, {3}, {std::numeric_limits<int64_t>::max()}, kCpu, "reach beyond");
  refuse(bytes + 1, {2}, {}, kCpu, "not aligned to 4 bytes");
  refuse(nullptr, {2}, {}, kCpu, "data is NULL");
  refuse(bytes, {2}, {}, c10::DeviceType::Meta, "meta");
}

TEST(TensorAccess, ReadsSingleElements) {
  EXPECT_EQ(single_number(at::full({1, 1}, 2.5)), 2.5);
  EXPECT_EQ(single_integer(at::full({}, int64_t{1} << 60, at::kLong)), int64_t{1} << 60);
  EXPECT_EQ(single_integer(at::ones({}, at::kBool)), 1);
  expect_failure([] { single_number(at::zeros({2})); }, Status::kShapeMismatch, "[2]");
  expect_failure([] { single_integer(at::zeros({})); }, Status::kTypeMismatch, "float32");
  expect_failure([] { single_number(at::zeros({}, at::kComplexFloat)); }, Status::kTypeMismatch, "complex64");
  expect_failure([] { single_number(at::empty({}, at::kMeta)); }, Status::kInvalidState, "meta");
  const uint64_t large = std::numeric_limits<uint64_t>::max();
  expect_failure([&] { single_integer(from_data(&large, {}, at::kUInt64)); }, Status::kTypeMismatch, "uint64");
}

TEST(TensorAccess, ChecksBeforeItChanges) {
  const at::Tensor leaf = at::ones({2});
  set_requires_grad(leaf, true);
  const at::Tensor computed = leaf * 3;
  expect_failure([&] { set_requires_grad(computed, false); }, Status::kInvalidState, "leaf");
  expect_failure([] { set_requires_grad(at::zeros({2}, at::kInt), true); }, Status::kTypeMismatch, "int32");
  expect_failure([] { copy_elements(at::zeros({2}), at::zeros({3})); }, Status::kShapeMismatch, "[3]");
  expect_failure([] { data_pointer(at::empty({2}, at::kMeta)); }, Status::kInvalidState, "meta");
}

TEST(TensorLoss, CrossEntropyOfAnyRank) {
  const at::Tensor logits = at::randn({2, 3, 5}), labels = at::randint(5, {2, 3}, at::kLong);
  const at::Tensor expected = at::cross_entropy_loss(logits.reshape({6, 5}), labels.reshape({6}));
  EXPECT_TRUE(cross_entropy(logits, labels).equal(expected));
  EXPECT_TRUE(cross_entropy(logits[0][0], labels[0][0]).isfinite().item<bool>());
  expect_failure([&] { cross_entropy(logits, labels[0]); }, Status::kShapeMismatch, "[2, 3, 5]");
  expect_failure([&] { cross_entropy(logits, labels.to(at::kInt)); }, Status::kTypeMismatch, "int32");
  expect_failure([&] { cross_entropy(labels, labels); }, Status::kTypeMismatch, "int64");
}

// A producer of DLPack tensors over six floats.
struct Lent {
  std::vector<float> numbers = {0, 1, 2, 3, 4, 5};
  std::vector<int64_t> shape = {2, 2}, strides = {2, 1};
  int deleted = 0;
  DLManagedTensorVersioned managed{};

  Lent() {
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Lent*>(self->manager_ctx)->deleted; };
    managed.dl_tensor = {numbers.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), strides.data(), 0};
  }
};

TEST(TensorDlpack, TakesMemoryWithItsOffset) {
  Lent lent;
  lent.managed.dl_tensor.byte_offset = 2 * sizeof(float);
  {
    const at::Tensor taken = from_dlpack(&lent.managed);
    EXPECT_EQ(taken.const_data_ptr(), lent.numbers.data() + 2);
    EXPECT_EQ(taken[1][1].item<float>(), 5);
    EXPECT_EQ(lent.deleted, 0);
  }
  EXPECT_EQ(lent.deleted, 1);
}

TEST(TensorDlpack, RefusalRunsTheDeleterOnce) {
  const auto refuse = [](void (*spoil)(Lent&), Status status, const std::string& part) {
    Lent lent;
    spoil(lent);
    expect_failure([&] { from_dlpack(&lent.managed); }, status, part);
    EXPECT_EQ(lent.deleted, 1) << part;
  };
  refuse([](Lent& lent) { lent.managed.version.major = 2; }, Status::kUnsupported, "version 2.");
  refuse([](Lent& lent) { lent.managed.dl_tensor.device.device_type = kDLMetal; }, Status::kUnsupported,
         "device type 8");
  refuse([](Lent& lent) { lent.managed.dl_tensor.dtype.bits = 24; }, Status::kUnsupported, "24 bits");
  refuse([](Lent& lent) { lent.managed.dl_tensor.dtype.lanes = 4; }, Status::kUnsupported, "4 lanes");
  refuse([](Lent& lent) { lent.managed.dl_tensor.ndim = -1; }, Status::kInvalidArgument, "-1 dimensions");
  refuse([](Lent& lent) { lent.shape[0] = -2; }, Status::kInvalidArgument, "size -2");
  refuse([](Lent& lent) { lent.managed.dl_tensor.byte_offset = 2; }, Status::kInvalidArgument, "aligned");
}

TEST(TensorDlpack, LendsEveryDtypeThatDlpackHas) {
  for (const Dtype& dtype : kDtypes) {
    const at::Tensor tensor = at::empty({2, 3}, dtype.type).t();
    DLManagedTensorVersioned* const lent = to_dlpack_versioned(tensor);
    const at::Tensor back = from_dlpack(lent);
    EXPECT_EQ(back.scalar_type(), dtype.type) << dtype.name;
    EXPECT_EQ(back.strides(), tensor.strides());
    EXPECT_EQ(back.const_data_ptr(), tensor.const_data_ptr());
  }
}

TEST(TensorDlpack, RefusesToLend) {
  expect_failure([] { to_dlpack(at::ones({2}).requires_grad_(true)); }, Status::kInvalidArgument, "detach");
  expect_failure([] { to_dlpack(at::empty({2}, at::kMeta)); }, Status::kUnsupported, "meta");
  expect_failure([] { to_dlpack_versioned(at::zeros({2}, at::kComplexFloat).conj()); }, Status::kUnsupported,
                 "conjugate");
  expect_failure([] { to_dlpack(at::zeros({2}).to_sparse()); }, Status::kUnsupported, "Sparse");
}

}  // namespace tensor_test
}  // namespace accel::tensor
