// SPDX-License-Identifier: Apache-2.0
// Files of torch.save(): those that torch wrote are read (fixtures/make_torch_files.py), and what is written comes
// back.
#include "checkpoint/formats/torch/torch_file.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "checkpoint/formats/map_location.hpp"
#include "checkpoint/formats/torch/zip_reader.hpp"
#include "checkpoint_fixture.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"

namespace accel::checkpoint {
namespace torch_file_test {

using namespace checkpoint::tests;

c10::IValue load(const std::string& path) { return read_torch_file(std::make_shared<const MappedFile>(path)); }

std::string fixture(const std::string& name) {
  return std::string(ACCEL_TEST_FIXTURES) + "/torch_files/" + name + ".pt";
}

void save(const std::string& path, const c10::IValue& value) {
  AtomicFile file(path, quick_files());
  write_torch_file(file.output(), value);
  file.commit();
}

c10::IValue written_and_read(const c10::IValue& value) {
  const Folder folder;
  save(folder / "value.pt", value);
  return load(folder / "value.pt");
}

c10::IValue list_of(std::vector<c10::IValue> items) { return tree::new_list(std::move(items)); }
c10::IValue bytes_of(const std::string& bytes) { return tree::bytes_value(bytes, ""); }

// What the fixtures of every protocol have.
std::vector<std::pair<c10::IValue, c10::IValue>> plain() {
  std::vector<c10::IValue> integers;
  for (const int64_t integer : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{255}, int64_t{256}, int64_t{65535},
                                int64_t{65536}, int64_t{-70000}, int64_t{1} << 40, -(int64_t{1} << 62)})
    integers.emplace_back(integer);
  return {{"none", c10::IValue()},
          {"flags", list_of({true, false})},
          {"integers", list_of(std::move(integers))},
          {"numbers", list_of({0.5, -1e300, std::numeric_limits<double>::infinity()})},
          {"text", list_of({"", "é漢", "line\nend", "\"'\\", std::string(300, 'x')})},
          {"bytes", bytes_of(std::string("\0\xff\x80"
                                         "abc",
                                         6))},
          {"tuple", tree::new_tuple({1, tree::new_tuple({2, tree::new_tuple({})})})},
          {7, "an integer as key"},
          {"bytearray", bytes_of("xy")},
          {"set", list_of({5})}};
}

std::vector<std::pair<c10::IValue, c10::IValue>> with_tensors() {
  const at::Tensor base = at::arange(6, at::kFloat).view({2, 3});
  auto value = plain();
  value.emplace_back("tensors", map_of({{"base", base},
                                        {"turned", base.t()},
                                        {"row", base[1]},
                                        {"empty", at::empty({0, 3})},
                                        {"scalar", at::scalar_tensor(2.5)},
                                        {"expanded", at::ones({4})},
                                        {"parameter", at::ones({2})}}));
  value.emplace_back("array", at::arange(6, at::kLong).to(at::kUInt32).view({2, 3}));
  value.emplace_back("fortran", at::arange(6, at::kDouble).view({2, 3}));
  value.emplace_back("scalars", list_of({1.5, -3, true}));
  value.emplace_back("dtype", tree::dtype_value(at::kBFloat16));
  value.emplace_back("device", at::Device(at::kCPU));
  value.emplace_back("size", tree::new_tuple({2, 3}));
  value.emplace_back("conjugate",
                     at::view_as_complex(at::arange(1, 3, at::kDouble).to(at::kFloat).view({1, 2})).conj());
  return value;
}

at::Tensor tensor_at(const c10::IValue& value, const std::string& key) {
  return value.toGenericDict().at(key).toTensor();
}

TEST(TorchFile, EveryProtocolOfBothLayoutsIsRead) {
  for (const std::string layout : {"zip", "stream"}) {
    for (int protocol = 0; protocol <= 5; protocol++) {
      const std::string name = layout + "_" + std::to_string(protocol);
      const c10::IValue read = load(fixture(name));
      const auto expected = tree::new_map(protocol < 2 ? plain() : with_tensors());
      EXPECT_TRUE(tree::equal(read, expected)) << name;
    }
  }
}

TEST(TorchFile, TensorsThatSharedAStorageShareItAgain) {
  for (const char* name : {"zip_2", "stream_2"}) {
    const c10::IValue tensors = load(fixture(name)).toGenericDict().at("tensors");
    const at::Tensor base = tensor_at(tensors, "base");
    base.add_(1);
    EXPECT_EQ(tensor_at(tensors, "turned")[2][1].item<double>(), 6) << name;
    EXPECT_EQ(tensor_at(tensors, "row")[0].item<double>(), 4) << name;
    EXPECT_EQ(tensor_at(tensors, "expanded").stride(0), 0) << name;
    EXPECT_TRUE(tensor_at(tensors, "parameter").requires_grad()) << name;
    EXPECT_FALSE(base.requires_grad()) << name;
  }
}

TEST(TorchFile, EveryDtypeIsRead) {
  for (const auto& [name, count] : {std::pair("zip_dtypes", 21), std::pair("stream_dtypes", 12)}) {
    const auto tensors = load(fixture(name)).toGenericDict();
    EXPECT_EQ(tensors.size(), count) << name;
    for (const auto& member : tensors) {
      const std::string& dtype = member.key().toStringRef();
      const at::Tensor tensor = member.value().toTensor();
      EXPECT_EQ(tensor::dtype_name(tensor.scalar_type()), dtype);
      EXPECT_EQ(tensor.nbytes(), 32U) << dtype;
      const auto* const bytes = static_cast<const char*>(tensor.const_data_ptr());
      for (size_t i = 0; i < tensor.nbytes(); i++) EXPECT_EQ(bytes[i], i % 2 == 0 ? 1 : 0) << dtype;
    }
  }
}

TEST(TorchFile, AStateDictAndRandomStatesAreRead) {
  const auto state = load(fixture("state_dict")).toGenericDict();
  std::vector<std::string> names;
  for (const auto& member : state) names.push_back(member.key().toStringRef());
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                             "1.running_var", "1.num_batches_tracked"}));
  EXPECT_TRUE(at::equal(state.at("0.weight").toTensor(), at::full({3, 2}, 0.5)));

  const auto random = load(fixture("random_states")).toGenericDict();
  const auto python = random.at("python").toTupleRef().elements();
  EXPECT_EQ(python[0].toInt(), 3);
  EXPECT_EQ(python[1].toTupleRef().elements().size(), 625U);
  const auto numpy = random.at("numpy").toTupleRef().elements();
  EXPECT_EQ(numpy[0].toStringRef(), "MT19937");
  EXPECT_EQ(numpy[1].toTensor().scalar_type(), at::kUInt32);
  EXPECT_EQ(numpy[1].toTensor().sizes(), at::IntArrayRef({624}));
  EXPECT_TRUE(at::equal(load(fixture("attribute")).toTensor(), at::ones({2})));
}

TEST(TorchFile, WhatValuesCannotHoldIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"sparse", "torch._utils._rebuild_sparse_tensor"},
      {"quantized", "torch._utils._rebuild_qtensor"},
      {"meta", "torch._utils._rebuild_meta_tensor_no_storage"},
      {"module", "torch.nn.modules.linear.Linear"},
      {"function", "torch.serialization.save"},
      {"tuple_key", "key of kind tuple"},
      {"long", "more than 64 bits"},
      {"complex", "complex number"},
      {"text_array", "dtype 'U1'"},
      {"object_array", "dtype 'O8'"},
      {"big_endian_array", "big-endian"}};
  for (const auto& [name, part] : refused)
    expect_error(Status::kUnsupported, part, [&, name = name] { load(fixture("refused_" + name)); });
}

TEST(TorchFile, EveryKindOfValueComesBack) {
  auto value = with_tensors();
  value.back().second = value.back().second.toTensor().resolve_conj();
  value.emplace_back("typed", tree::bytes_value("\x80\x04", "python/pickle"));
  value.emplace_back("device with a number", at::Device("cuda:1"));
  value.emplace_back("nan", std::numeric_limits<double>::quiet_NaN());
  value.emplace_back("least", std::numeric_limits<int64_t>::min());
  std::vector<c10::IValue> many;
  std::vector<std::pair<c10::IValue, c10::IValue>> members;
  for (int i = 0; i < 2500; i++) {  // more than a batch of items, more texts than one byte counts
    many.emplace_back("text " + std::to_string(i % 400));
    members.emplace_back(i, i);
  }
  value.emplace_back("many", list_of(std::move(many)));
  value.emplace_back("members", tree::new_map(std::move(members)));
  const c10::IValue given = tree::new_map(std::move(value));
  EXPECT_TRUE(same(written_and_read(given), given));
  for (const c10::IValue& alone : {c10::IValue(), c10::IValue(3), c10::IValue(at::ones({2})), list_of({})})
    EXPECT_TRUE(same(written_and_read(alone), alone));
}

TEST(TorchFile, RandomTensorsOfEveryDtypeComeBack) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; round++) {
    std::vector<c10::IValue> tensors;
    for (int i = 0; i < 12; i++) tensors.emplace_back(random_tensor(random));
    for (const at::ScalarType dtype : {at::kComplexHalf, at::kComplexDouble})
      tensors.emplace_back(at::zeros({3}, dtype));
    const c10::IValue given = list_of(std::move(tensors));
    EXPECT_TRUE(same(written_and_read(given), given));
  }
}

TEST(TorchFile, ViewsKeepTheirStridesAndOnlyWhatTheyUseIsWritten) {
  const at::Tensor base = at::arange(1000, at::kFloat);
  const at::Tensor square = base.slice(0, 100, 125).view({5, 5});
  const auto read =
      written_and_read(list_of({square.t(), base.slice(0, 110, 140), base.slice(0, 0, 0)})).toListRef().vec();
  const at::Tensor turned = read[0].toTensor(), row = read[1].toTensor();
  EXPECT_EQ(turned.strides(), at::IntArrayRef({1, 5}));
  EXPECT_TRUE(at::equal(turned, square.t()));
  EXPECT_EQ(turned.storage().nbytes(), 40 * sizeof(float));
  EXPECT_EQ(turned.storage().data(), row.storage().data());
  EXPECT_EQ(read[2].toTensor().numel(), 0);
  turned[0][4].fill_(-1);  // element 120
  EXPECT_EQ(row[10].item<double>(), -1);
}

TEST(TorchFile, OneStorageMayHaveTensorsOfTwoDtypes) {
  const at::Tensor numbers = at::arange(8, at::kFloat), bits = numbers.slice(0, 5).view(at::kInt);
  const auto read = written_and_read(list_of({numbers, bits})).toListRef().vec();
  EXPECT_TRUE(at::equal(read[0].toTensor(), numbers));
  EXPECT_TRUE(at::equal(read[1].toTensor(), bits));
  EXPECT_EQ(read[0].toTensor().storage().data(), read[1].toTensor().storage().data());
}

TEST(TorchFile, TensorsShareTheMappingAndOutliveTheFile) {
  const Folder folder;
  save(folder / "t.pt", list_of({at::ones({1000})}));
  at::Tensor tensor = load(folder / "t.pt").toListRef()[0].toTensor();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64, 0U);
  tensor.add_(1);
  EXPECT_EQ(load(folder / "t.pt").toListRef()[0].toTensor().sum().item<double>(), 1000);
  fs::remove(folder / "t.pt");
  EXPECT_EQ(tensor.sum().item<double>(), 2000);
}

TEST(TorchFile, WhatCannotBeWrittenIsRefused) {
  expect_error(Status::kTypeMismatch, "sparse", [] { written_and_read(at::eye(2).to_sparse()); });
  expect_error(Status::kTypeMismatch, "meta device", [] { written_and_read(at::empty({1}, at::kMeta)); });
  expect_error(Status::kInvalidArgument, "not UTF-8", [] { written_and_read("\xff"); });
  expect_error(Status::kInvalidArgument, "'$bytes' alone", [] { written_and_read(map_of({{"$bytes", 1}})); });
  auto flags = c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get());
  flags.insert(true, 1);
  expect_error(Status::kTypeMismatch, "key of kind bool", [&] { written_and_read(list_of({flags})); });
  c10::IValue deep = 1;
  for (int i = 0; i < 250; i++) deep = list_of({deep});
  expect_error(Status::kInvalidArgument, "nested more than", [&] { written_and_read(deep); });
}

TEST(TorchFile, EveryCutIsRefused) {
  const Folder folder;
  for (const char* name : {"zip_2", "stream_2"}) {
    const std::string whole = read_text(fixture(name));
    for (size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 7) {
      write_text(folder / "cut.pt", whole.substr(0, size));
      try {
        load(folder / "cut.pt");
        ADD_FAILURE() << name << " cut to " << size << " bytes";
      } catch (const Error& error) {
        EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
      }
    }
    write_text(folder / "longer.pt", whole + "x");
    EXPECT_THROW(load(folder / "longer.pt"), Error) << name;
  }
}

TEST(TorchFile, ADamagedPickleIsFound) {
  const Folder folder;
  save(folder / "t.pt", map_of({{"learning rate", 0.5}}));
  std::string file = read_text(folder / "t.pt");
  file[file.find("learning")] = 'L';
  write_text(folder / "t.pt", file);
  expect_error(Status::kCorrupt, "'archive/data.pkl' does not have the checksum", [&] { load(folder / "t.pt"); });
}

TEST(TorchFile, TensorsThatShareAStorageShareItOnAnotherDevice) {
  const at::Tensor whole = at::arange(6, at::kFloat);
  const c10::IValue value = written_and_read(list_of({whole, whole.slice(0, 2, 5), at::ones({2}), "text"}));
  const auto moved = map_location(value, c10::Device(c10::kMeta)).toListRef().vec();
  const at::Tensor first = moved[0].toTensor(), second = moved[1].toTensor();
  EXPECT_TRUE(first.is_meta());
  EXPECT_TRUE(first.is_alias_of(second));
  EXPECT_FALSE(first.is_alias_of(moved[2].toTensor()));
  EXPECT_EQ(second.storage_offset(), 2);
  EXPECT_EQ(second.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(moved[3].toStringRef(), "text");
  const auto stayed = map_location(value, c10::Device(c10::kCPU)).toListRef().vec();
  EXPECT_TRUE(stayed[0].toTensor().is_same(value.toListRef()[0].toTensor()));
}

TEST(TorchFile, FilesAreRecognisedByTheirBeginning) {
  for (const char* name : {"zip_2", "zip_0", "stream_0", "stream_1", "stream_2", "stream_5"})
    EXPECT_TRUE(is_torch_file(read_text(fixture(name)).substr(0, kTorchFileBytes))) << name;
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_TRUE(is_torch_file(tar));
  const Folder folder;
  write_text(folder / "old.pt", tar);
  expect_error(Status::kUnsupported, "tar archive", [&] { load(folder / "old.pt"); });
  for (const std::string& other : {std::string(), std::string("{}"), std::string(8, '\0') + "{}"})
    EXPECT_FALSE(is_torch_file(other));
}

}  // namespace torch_file_test
}  // namespace accel::checkpoint
