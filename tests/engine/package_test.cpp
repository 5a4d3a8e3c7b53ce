// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <caffe2/serialize/inline_container.h>
#include <sys/utsname.h>
#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "nn/package/call_tree.hpp"
#include "nn/package/input_checks.hpp"
#include "nn/package/needed_library.hpp"
#include "nn/package/package_module.hpp"
#include "nn/package/package_target.hpp"
#include "nn_fixture.hpp"
#include "os/loaded_file.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace package_test {

using tests::expect_error;

std::string machine() {
  utsname system = {};
  uname(&system);
  return system.machine;
}

// The texts of a package for this machine.
std::map<std::string, std::string> texts_for_here() {
  return {{"AOTI_PLATFORM", "linux"}, {"AOTI_MACHINE", machine()}, {"AOTI_DEVICE_KEY", "cpu"}};
}

// A package whose shared object is none.
class WrittenPackage {
 public:
  WrittenPackage()
      : path_((std::filesystem::temp_directory_path() / text("accel_package_", getpid(), ".pt2")).string()) {}
  ~WrittenPackage() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

  void write(const std::map<std::string, std::string>& texts, const std::vector<std::string>& models = {"model"},
             const std::string& extension = ".so") {
    Json::Members members;
    for (const auto& [name, value] : texts) members.emplace_back(name, Json(value));
    const std::string document = print_json(Json(std::move(members)));
    caffe2::serialize::PyTorchStreamWriter writer(path_);
    for (const std::string& model : models) {
      const std::string stem = "data/aotinductor/" + model + "/code.wrapper";
      writer.writeRecord(stem + extension, "this is no shared object", 24);
      writer.writeRecord(stem + "_metadata.json", document.data(), document.size());
    }
    writer.writeEndOfFile();
  }

 private:
  std::string path_;
};

CallTree tree_of(const std::string& node) { return CallTree::parse("[1," + node + "]", "a.pt2"); }

const std::string kLeaf = R"({"type":null,"context":null,"children_spec":[]})";

TEST(Package, TakesAndReturnsTrees) {
  const std::string list = R"({"type":"builtins.list","context":"null","children_spec":[)" + kLeaf + "," + kLeaf + "]}";
  const std::string whole = R"({"type":"builtins.tuple","context":"null","children_spec":[)" + list +
                            R"(,{"type":"builtins.dict","context":"[\"b\", \"a\"]","children_spec":[)" + kLeaf + "," +
                            kLeaf + "]}]}";
  const CallTree tree = tree_of(whole);
  EXPECT_EQ(tree.leaves(), 4u);
  const at::Tensor first = at::ones({1}), second = at::ones({2}), third = at::ones({3}), fourth = at::ones({4});
  const c10::IValue value = tree::new_list(
      {tree::new_list({first, second}), tree::new_map({{c10::IValue("a"), fourth}, {c10::IValue("b"), third}})});
  std::vector<c10::IValue> leaves;
  tree.flatten(value, "x", leaves);
  ASSERT_EQ(leaves.size(), 4u);
  for (size_t i = 0; i < 4; i++) EXPECT_EQ(leaves[i].toTensor().numel(), static_cast<int64_t>(i + 1));

  size_t next = 0;
  const c10::IValue made = tree.unflatten({first, second, third, at::Tensor()}, next);
  ASSERT_TRUE(made.isTuple());
  EXPECT_TRUE(tree::sequence_items(made)[0].isList());
  EXPECT_TRUE(tree::find_member(tree::sequence_items(made)[1], "b")->toTensor().is_same(third));
  EXPECT_EQ(tree::find_member(tree::sequence_items(made)[1], "a"), nullptr);  // None
}

// Classes of models list their members in what they have beside: alone, or before the names of those that are None.
TEST(Package, ReturnsClassesAsMaps) {
  for (const std::string context : {R"([\"logits\"])", R"([[\"logits\"], [\"loss\"]])"}) {
    const CallTree tree =
        tree_of(R"({"type":"some.ModelOutput","context":")" + context + R"(","children_spec":[)" + kLeaf + "]}");
    size_t next = 0;
    const c10::IValue made = tree.unflatten({at::ones({2})}, next);
    EXPECT_NE(tree::find_member(made, "logits"), nullptr) << context;
  }
}

TEST(Package, NamesTheInputOfAnotherStructure) {
  const CallTree tree =
      tree_of(R"({"type":"builtins.list","context":"null","children_spec":[)" + kLeaf + "," + kLeaf + "]}");
  std::vector<c10::IValue> leaves;
  expect_error(Status::kInvalidArgument, "the input 'pair' of a package is a tensor; expected a list of 2",
               [&] { tree.flatten(at::ones({1}), "pair", leaves); });
  expect_error(Status::kInvalidArgument, "'pair.0' of a package is a list; expected a tensor", [&] {
    tree.flatten(tree::new_list({tree::new_list(), at::ones({1})}), "pair", leaves);
  });
  for (const char* const document : {"", "[]", "[1,{}]", "[1,2]", R"([1,{"type":"builtins.list"}])"})
    expect_error(Status::kCorrupt, "a.pt2", [&] { CallTree::parse(document, "a.pt2"); });
}

InputChecks checks_of(const std::string& inputs) {
  return InputChecks(parse_json(R"({"names":["ids","mask"],"inputs":)" + inputs + "}", "test"), at::kCPU, "a.pt2");
}

TEST(Package, ChecksInputsByWhatItWasMadeFor) {
  const InputChecks checks = checks_of(
      R"([{"name":"ids","dtype":"int64","shape":[{"symbol":"s0","min":1,"max":8},4]},)"
      R"({"name":"mask","dtype":"float32","shape":[{"symbol":"s0","min":1,"max":8}]},{"name":"scale","value":2}])");
  const auto call = [&](const at::Tensor& ids, const at::Tensor& mask, const c10::IValue& scale = 2) {
    return checks.tensors_of({ids, mask, scale});
  };
  const auto ids = [](int64_t rows, int64_t columns) { return at::zeros({rows, columns}, at::kLong); };
  EXPECT_EQ(call(ids(1, 4), at::zeros({1})).size(), 2u);
  EXPECT_EQ(call(ids(1, 4), at::zeros({1}), 2.0).size(), 2u);
  EXPECT_TRUE(call(at::zeros({4, 8}, at::kLong).t(), at::zeros({8}))[0].is_contiguous());
  expect_error(Status::kShapeMismatch, "a size of 1 to 8 in dimension 0", [&] { call(ids(9, 4), at::zeros({9})); });
  expect_error(Status::kShapeMismatch, "expected 4 in dimension 1", [&] { call(ids(2, 5), at::zeros({2})); });
  expect_error(Status::kShapeMismatch, "expected 2, as other inputs have it, in dimension 0",
               [&] { call(ids(2, 4), at::zeros({3})); });
  expect_error(Status::kShapeMismatch, "expected 1 dimensions", [&] { call(ids(2, 4), at::zeros({2, 1})); });
  expect_error(Status::kTypeMismatch, "'ids' of a package is of dtype float32; expected int64", [&] {
    call(at::zeros({2, 4}), at::zeros({2}));
  });
  expect_error(Status::kTypeMismatch, "on meta; expected cpu", [&] { call(ids(2, 4).to(at::kMeta), at::zeros({2})); });
  expect_error(Status::kInvalidArgument, "'scale' of a package is another value than when it was made; expected 2",
               [&] { call(ids(2, 4), at::zeros({2}), 3); });
  expect_error(Status::kUnsupported, "no backward", [&] { call(ids(2, 4), at::zeros({2}).set_requires_grad(true)); });
}

TEST(Package, TakesTensorsAloneOfUndescribedCode) {
  const InputChecks checks(Json(), at::kCPU, "a.pt2");
  EXPECT_EQ(checks.tensors_of({at::ones({2}), c10::IValue()}).size(), 1u);
  expect_error(Status::kTypeMismatch, "the input '1' of a package is int; expected a tensor", [&] {
    checks.tensors_of({at::ones({2}), 3});
  });
}

TEST(Package, RefusesWhatIsNoPackage) {
  expect_error(Status::kNotFound, "'no.pt2' is not there", [] { load_package("no.pt2"); });
  WrittenPackage package;
  std::ofstream(package.path()) << "this is not an archive";
  expect_error(Status::kCorrupt, package.path(), [&] { load_package(package.path()); });
  {
    caffe2::serialize::PyTorchStreamWriter writer(package.path());
    writer.writeRecord("data.pkl", "x", 1);
    writer.writeEndOfFile();
  }
  expect_error(Status::kCorrupt, "it has no model of AOTInductor", [&] { load_package(package.path()); });
}

TEST(Package, RefusesWhatItCannotRunBeforeItsCodeIsLoaded) {
  WrittenPackage package;
  const auto expect = [&](Status status, const std::string& part, const std::string& name, const std::string& value) {
    std::map<std::string, std::string> texts = texts_for_here();
    texts[name] = value;
    package.write(texts);
    expect_error(status, part, [&] { load_package(package.path()); });
  };
  expect(Status::kUnsupported, "made for the system 'win32'; expected linux", "AOTI_PLATFORM", "win32");
  expect(Status::kUnsupported, "made for machines of the kind riscv64", "AOTI_MACHINE", "riscv64");
  expect(Status::kUnsupported, "made by LibTorch 1.13.1, and this is " TORCH_VERSION, "accel",
         R"({"libtorch":"1.13.1"})");
  expect(Status::kUnsupported, "with the instructions 'avx99', which this one lacks", "accel",
         R"({"processor":"avx99"})");
  expect(Status::kCorrupt, "does not say for which device", "AOTI_DEVICE_KEY", "");
  expect(Status::kCorrupt, "describes its inputs wrongly", "accel", R"({"inputs":[{"dtype":"float3"}]})");
  PackageSettings settings;
  settings.device = "meta";
  package.write(texts_for_here());
  expect_error(Status::kUnsupported, "was made for the device cpu, and 'meta' is asked for",
               [&] { load_package(package.path(), settings); });
  // All is well but for the code.
  expect_error(Status::kUnsupported, "cannot be loaded", [&] { load_package(package.path()); });
  package.write(texts_for_here(), {"model"}, ".cpp");
  expect_error(Status::kUnsupported, "has sources and no shared object", [&] { load_package(package.path()); });
}

TEST(Package, AsksForOneOfSeveralModels) {
  WrittenPackage package;
  package.write(texts_for_here(), {"encoder", "decoder"});
  expect_error(Status::kInvalidArgument, "has the models 'decoder', 'encoder'; expected model_name to be one of them",
               [&] { load_package(package.path()); });
  PackageSettings settings;
  settings.model_name = "head";
  expect_error(Status::kNotFound, "has no model 'head'; it has 'decoder', 'encoder'",
               [&] { load_package(package.path(), settings); });
  settings.model_name = "encoder";
  expect_error(Status::kUnsupported, "cannot be loaded", [&] { load_package(package.path(), settings); });
}

TEST(Package, LeavesNothingBehind) {
  const auto folders = [] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::temp_directory_path()))
      if (entry.path().filename().string().rfind("accel-package-", 0) == 0) count++;
    return count;
  };
  const size_t before = folders();
  WrittenPackage package;
  package.write(texts_for_here());
  expect_error(Status::kUnsupported, "cannot be loaded", [&] { load_package(package.path()); });
  EXPECT_EQ(folders(), before);
}

TEST(Package, DamagedFilesAreRefusedInOrder) {
  WrittenPackage package;
  package.write(texts_for_here());
  std::ifstream file(package.path(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::mt19937 random(1);
  for (int round = 0; round < 200; round++) {
    std::string damaged = whole;
    if (round % 4 == 0) damaged.resize(random() % whole.size());
    for (auto flips = random() % 8 + 1; flips > 0 && !damaged.empty(); flips--)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    std::ofstream(package.path(), std::ios::binary) << damaged;
    EXPECT_THROW(load_package(package.path()), Error);
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// Code for the CPU names a library that is not there without the libraries of other devices.
TEST(Package, ReplacesALibraryThatCodeNames) {
  const std::string path = (std::filesystem::temp_directory_path() / text("accel_package_", getpid(), ".so")).string();
  const std::string original = loaded_file_of(&c10::GetCPUAllocator);
  std::filesystem::copy_file(original, path, std::filesystem::copy_options::overwrite_existing);
  const std::string before = bytes_of(path);
  replace_needed_library(path, "libno.so", "libc.so.6");
  replace_needed_library(path, "libc.so.6", "libno.so");
  EXPECT_EQ(bytes_of(path), before);
  replace_needed_library(path, "libgcc_s.so.1", "libc.so.6");
  const std::string after = bytes_of(path);
  ASSERT_EQ(after.size(), before.size());
  const auto changed = [&](size_t place) { return before[place] != after[place]; };
  size_t first = 0, last = before.size() - 1;
  while (first < last && !changed(first)) first++;
  while (last > first && !changed(last)) last--;
  EXPECT_LT(first, last + 1);
  EXPECT_LE(last - first, 16u);                                // one entry
  replace_needed_library(path, "libgcc_s.so.1", "libc.so.6");  // there is none any more
  EXPECT_EQ(bytes_of(path), after);
  std::ofstream(path, std::ios::trunc) << "this is no shared object";
  replace_needed_library(path, "libgcc_s.so.1", "libc.so.6");
  EXPECT_EQ(bytes_of(path), "this is no shared object");
  std::filesystem::remove(path);
}

TEST(Package, KnowsTheInstructionsOfAProcessor) {
  EXPECT_EQ(missing_instruction_sets("avx2 fma", {"fma", "sse"}), (std::vector<std::string>{"avx2"}));
  EXPECT_TRUE(missing_instruction_sets("", {}).empty());
  EXPECT_TRUE(instruction_sets("/no/such/list").empty());
}

}  // namespace package_test
}  // namespace accel::nn
