// SPDX-License-Identifier: Apache-2.0
// Device maps of random models are valid, say why, and fail with the module that does not fit.
#include "bigmodel/device_map/infer_device_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/log.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "expect_error.hpp"
#include "nn/module_sizes.hpp"
#include "nn/module_walks.hpp"
#include "nn/tied_parameters.hpp"
#include "random_model.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace infer_device_map_test {

nn::ModulePtr layer(const std::string& kind, int64_t elements) {
  auto module = std::make_shared<nn::CallbackModule>(kind);
  module->add_parameter("weight", at::empty({elements}, at::TensorOptions().dtype(at::kChar).device(at::kMeta)), false);
  return module;
}

// Layers of these bytes, "a", "b", ...
nn::ModulePtr chain(const std::vector<int64_t>& sizes) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  for (size_t i = 0; i < sizes.size(); i++)
    model->add_child(std::string(1, static_cast<char>('a' + i)), layer("Layer", sizes[i]));
  return model;
}

double total_size(const nn::Module& model) {
  const nn::ModuleSizes sizes = nn::compute_module_sizes(model);
  return sizes.empty() ? 0 : sizes.front().second;
}

// Each tensor has one place, in one entry that it is in or below; limits hold; tied parameters are together.
void expect_valid(const nn::Module& model, const DeviceMap& map, const MaxMemory& memory) {
  std::set<std::string> paths;
  std::map<std::string, double> used;
  for (const auto& [path, place] : map) EXPECT_TRUE(paths.insert(path).second) << path << " is placed twice";
  nn::TensorSelection all;
  all.recurse = true;
  for (const auto& [name, tensor] : nn::named_module_tensors(model, all)) {
    const auto holds = [&name = name](const auto& entry) {
      return entry.first.empty() || name == entry.first || name.rfind(entry.first + ".", 0) == 0;
    };
    EXPECT_EQ(std::count_if(map.begin(), map.end(), holds), 1) << name;
    const std::string* const place = find_place(map, name);
    ASSERT_NE(place, nullptr) << name;
    used[*place] += static_cast<double>(tensor.nbytes());
  }
  for (const auto& [place, bytes] : memory) EXPECT_LE(used[place], bytes) << place;
  const nn::TiedGroups ties = nn::find_tied_parameters(model);
  EXPECT_TRUE(tied_in_several_places(ties, map).empty());
}

TEST(InferDeviceMap, EveryTensorHasOneDeviceAndLimitsAndTiesHold) {
  size_t with_ties = 0, devices = 0;
  for (uint32_t seed = 0; seed < 4000; seed++) {
    SCOPED_TRACE(seed);
    tests::RandomModel random(seed);
    const nn::ModulePtr model = random.make(random.draw(1, 3));
    const MaxMemory memory = random.memory(total_size(*model));
    DeviceMapOptions settings;
    std::string classes;
    for (const std::string& name : random.classes()) classes += (classes.empty() ? "" : ",") + name;
    settings.no_split_module_classes = classes;
    settings.fallback_allocation = random.chance(0.5);
    settings.optimal_packing = random.chance(0.3);
    settings.clean_result = false;
    const InferredDeviceMap inferred = infer_device_map(*model, memory, settings);
    expect_valid(*model, inferred.map, memory);
    EXPECT_EQ(infer_device_map(*model, memory, settings).map, inferred.map);
    with_ties += nn::find_tied_parameters(*model).empty() ? 0 : 1;
    std::set<std::string> places;
    for (const auto& [path, place] : inferred.map) places.insert(place);
    devices = std::max(devices, places.size());
    if (HasFailure()) return;
  }
  EXPECT_GT(with_ties, 1000U);
  EXPECT_EQ(devices, 5U);
}

TEST(InferDeviceMap, CleanedMapsMeanTheSame) {
  for (uint32_t seed = 0; seed < 500; seed++) {
    SCOPED_TRACE(seed);
    tests::RandomModel random(seed);
    const nn::ModulePtr model = random.make(3);
    const MaxMemory memory = random.memory(total_size(*model));
    DeviceMapOptions settings;
    settings.clean_result = false;
    const DeviceMap whole = infer_device_map(*model, memory, settings).map;
    const DeviceMap cleaned = clean_device_map(whole);
    EXPECT_LE(cleaned.size(), whole.size());
    EXPECT_EQ(clean_device_map(cleaned), cleaned);
    nn::TensorSelection all;
    all.recurse = true;
    for (const auto& [name, tensor] : nn::named_module_tensors(*model, all)) {
      ASSERT_NE(find_place(cleaned, name), nullptr) << name;
      EXPECT_EQ(*find_place(cleaned, name), *find_place(whole, name)) << name;
    }
    check_device_map(*model, cleaned);
    if (HasFailure()) return;
  }
}

TEST(InferDeviceMap, ADtypeBelowAByteCounts) {
  const nn::ModulePtr model = chain({100, 100});
  const auto model_in_floats = std::make_shared<nn::CallbackModule>("Model");
  for (const char* const name : {"a", "b"}) {
    auto one = std::make_shared<nn::CallbackModule>("Layer");
    one->add_parameter("weight", at::empty({100}, at::TensorOptions().dtype(at::kFloat).device(at::kMeta)));
    model_in_floats->add_child(name, one);
  }
  DeviceMapOptions settings;
  settings.dtype = "int4";
  EXPECT_EQ(infer_device_map(*model_in_floats, MaxMemory{{"0", 150}}, settings).map, (DeviceMap{{"", "0"}}));
  settings.dtype = "fp8";
  EXPECT_EQ(infer_device_map(*model_in_floats, MaxMemory{{"0", 150}}, settings).map.size(), 1U);
  EXPECT_EQ(infer_device_map(*model_in_floats, MaxMemory{{"0", 150}}, settings).map[0].second, "disk");
  settings.special_dtypes = {{"a.weight", "int2"}};
  EXPECT_EQ(infer_device_map(*model_in_floats, MaxMemory{{"0", 150}}, settings).map, (DeviceMap{{"", "0"}}));
  settings.dtype = "int5";
  tests::expect_error(Status::kNotFound, "int5", [&] { infer_device_map(*model, MaxMemory{{"0", 150}}, settings); });
}

// 10 and 20 bytes fit on accelerator 0 beside the 30 for the largest layer, the first 30 do not.
TEST(InferDeviceMap, ExplainsEachDecision) {
  const nn::ModulePtr model = chain({10, 20, 30, 30});
  DeviceMapOptions settings;
  const InferredDeviceMap inferred = infer_device_map(*model, MaxMemory{{"0", 70}, {"cpu", 29}}, settings, true);
  EXPECT_EQ(inferred.map, (DeviceMap{{"a", "0"}, {"b", "0"}, {"c", "disk"}, {"d", "disk"}}));
  std::vector<std::string> decisions;
  for (const c10::IValue& decision : inferred.explanation.decisions.toListRef()) {
    const auto map = decision.toGenericDict();
    decisions.push_back(map.at("module").toStringRef() + " " + map.at("decision").toStringRef() + " " +
                        tree::to_json(map.at("device")) + " " + tree::to_json(map.at("needed")) + " " +
                        tree::to_json(map.at("available")) + " " + tree::to_json(map.at("reserved")));
  }
  EXPECT_EQ(decisions, (std::vector<std::string>{"a placed 0 10 40 30", "b placed 0 20 30 30",
                                                 "c next_device 0 30 10 30", "c next_device \"cpu\" 30 -1 30",
                                                 "c placed \"disk\" 30 null 0", "d placed \"disk\" 30 null 0"}));
  EXPECT_NE(inferred.explanation.text.find("'c' does not fit on cpu"), std::string::npos) << inferred.explanation.text;
  EXPECT_EQ(inferred.minimum_memory, (std::vector<std::pair<std::string, double>>{{"cpu", 60}}));
}

TEST(InferDeviceMap, ExplainsTiesAndSplits) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  auto block = std::make_shared<nn::CallbackModule>("Block");
  block->add_child("one", layer("Layer", 40));
  block->add_child("two", layer("Layer", 50));
  model->add_child("first", layer("Layer", 10));
  model->add_child("block", block);
  model->add_child("last", layer("Layer", 10));
  model->add_child("end", layer("Layer", 50));
  nn::tie(*model, "last.weight", "first.weight");
  const InferredDeviceMap inferred = infer_device_map(*model, MaxMemory{{"0", 105}}, {}, true);
  EXPECT_EQ(inferred.map,
            (DeviceMap{{"first", "0"}, {"last", "0"}, {"block.one", "0"}, {"block.two", "disk"}, {"end", "disk"}}));
  EXPECT_NE(inferred.explanation.text.find("'first' fits on 0 with 'last', which ties join to it"), std::string::npos)
      << inferred.explanation.text;
  EXPECT_NE(inferred.explanation.text.find("'block' split, because it does not fit on 0"), std::string::npos)
      << inferred.explanation.text;
}

TEST(InferDeviceMap, BuffersOfSplitModulesHaveAPlace) {
  auto block = std::make_shared<nn::CallbackModule>("Block");
  block->add_child("one", layer("Layer", 400));
  block->add_child("two", layer("Layer", 400));
  block->add_buffer("scale", at::empty({40}, at::TensorOptions().dtype(at::kChar).device(at::kMeta)));
  auto model = std::make_shared<nn::CallbackModule>("Model");
  model->add_child("b1", block);
  const DeviceMap map = infer_device_map(*model, MaxMemory{{"0", 830}, {"1", 2000}}, {}).map;
  EXPECT_EQ(map, (DeviceMap{{"b1.one", "0"}, {"b1.two", "0"}, {"b1.scale", "1"}}));
  EXPECT_EQ(check_device_map(*model, map), (std::vector<std::string>{"b1.scale"}));  // which is not a module
}

TEST(InferDeviceMap, WithoutTheDiskNamesWhatDoesNotFit) {
  DeviceMapOptions settings;
  settings.allow_disk = false;
  const MaxMemory memory{{"0", 65}, {"cpu", 25}};
  const nn::ModulePtr model = chain({10, 20, 30, 40});
  tests::expect_error(Status::kOutOfMemory, "'b' needs 20 bytes; 0 has 15 left of 65",
                      [&] { infer_device_map(*model, memory, settings); });
  tests::expect_error(Status::kOutOfMemory, "cpu has 25 left of 25",
                      [&] { infer_device_map(*model, memory, settings); });
  settings.optimal_packing = true;
  tests::expect_error(Status::kOutOfMemory, " bytes; 0 has 65 left of 65",
                      [&] { infer_device_map(*model, memory, settings); });
  settings.optimal_packing = false;
  EXPECT_EQ(infer_device_map(*model, MaxMemory{{"0", 65}, {"cpu", 1000}}, settings).map.size(), 4U);
  tests::expect_error(Status::kInvalidArgument, "max_memory has no device",
                      [&] { infer_device_map(*model, MaxMemory{}, settings); });
}

TEST(InferDeviceMap, MapsThatAProgramMeans) {
  const nn::ModulePtr model = chain({100, 100, 100, 100});
  const MaxMemory memory{{"0", 1000}, {"1", 1000}, {"cpu", 1000}};
  const auto resolve = [&](const c10::IValue& wanted) { return resolve_device_map(wanted, *model, memory, {}); };
  EXPECT_EQ(resolve("sequential"), (DeviceMap{{"", "0"}}));
  EXPECT_EQ(resolve("auto"), resolve("balanced"));
  EXPECT_EQ(resolve("auto"), (DeviceMap{{"a", "0"}, {"b", "0"}, {"c", "1"}, {"d", "1"}}));
  EXPECT_EQ(resolve("balanced_low_0"), (DeviceMap{{"", "1"}}));
  tests::expect_error(Status::kInvalidArgument, "device_map is 'best'; expected \"auto\"", [&] { resolve("best"); });
  tests::expect_error(Status::kTypeMismatch, "device_map is a int", [&] { resolve(1); });

  const auto by_hand = [&](const std::string& json) { return resolve(tree::from_json(json, "test")); };
  EXPECT_EQ(by_hand(R"({"a": 0, "": "cpu"})"), (DeviceMap{{"a", "0"}, {"", "cpu"}}));
  EXPECT_EQ(by_hand(R"({"a": "disk", "b.weight": 1, "c": "meta", "d": 1})").size(), 4U);
  tests::expect_error(Status::kNotFound,
                      "device_map has 'a.wieght', which is not in the model; the most similar path is 'a.weight'",
                      [&] { by_hand(R"({"a.wieght": 0, "": 1})"); });
  tests::expect_error(Status::kInvalidArgument, "no place for 'c.weight', 'd.weight'",
                      [&] { by_hand(R"({"a": 0, "b": 1})"); });
  tests::expect_error(Status::kInvalidArgument, "device 'gpu' is not known", [&] { by_hand(R"({"": "gpu"})"); });
  tests::expect_error(Status::kInvalidArgument, "device '-1' is not known", [&] { by_hand(R"({"": -1})"); });
  tests::expect_error(Status::kTypeMismatch, "device_map['a'] is a", [&] { by_hand(R"({"a": [0]})"); });
}

TEST(InferDeviceMap, TiesInSeveralPlacesAreFound) {
  const nn::ModulePtr model = chain({10, 10, 10});
  nn::tie(*model, "c.weight", "a.weight");
  const nn::TiedGroups groups = nn::find_tied_parameters(*model);
  EXPECT_EQ(groups, (nn::TiedGroups{{"a.weight", "c.weight"}}));
  EXPECT_EQ(tied_in_several_places(groups, {{"a", "0"}, {"", "1"}}), groups);
  EXPECT_TRUE(tied_in_several_places(groups, {{"b", "0"}, {"", "1"}}).empty());
  tests::expect_error(Status::kInvalidArgument, "no place for 'c.weight'", [&] {
    tied_in_several_places(groups, {{"a", "0"}});
  });
}

TEST(InferDeviceMap, TiesThatWereCutAreTiedAgain) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  for (const char* const name : {"a", "b", "c"}) {
    auto one = std::make_shared<nn::CallbackModule>("Layer");
    const auto device = name[0] == 'a' ? at::kMeta : at::kCPU;
    one->add_parameter("weight", at::empty({3}, at::TensorOptions().dtype(at::kFloat).device(device)));
    model->add_child(name, one);
  }
  tests::expect_error(Status::kNotFound, "z", [&] {
    nn::retie_parameters(*model, {{"a.weight", "b.weight"}, {"c.weight", "z.weight"}});
  });
  EXPECT_TRUE(nn::find_tied_parameters(*model).empty()) << "nothing is changed on an error";
  nn::retie_parameters(*model, {{"a.weight", "b.weight", "c.weight"}});
  EXPECT_TRUE(nn::find_tensor(*model, "a.weight").is_same(nn::find_tensor(*model, "c.weight")));
  EXPECT_TRUE(nn::find_tensor(*model, "b.weight").is_cpu());
  EXPECT_EQ(nn::find_tied_parameters(*model).size(), 1U);
  tests::expect_error(Status::kNotFound, "z", [&] { nn::retie_parameters(*model, {{"z.weight", "a.weight"}}); });
}

TEST(InferDeviceMap, SharedModulesHaveAPlaceUnderEachName) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  const nn::ModulePtr shared = layer("Layer", 10);
  model->add_child("a", shared);
  model->add_child("b", layer("Layer", 100));
  model->add_child("c", shared);
  model->add_child("d", layer("Layer", 100));
  const DeviceMap map = infer_device_map(*model, MaxMemory{{"0", 115}, {"1", 115}}, {}).map;
  EXPECT_EQ(map, (DeviceMap{{"a", "0"}, {"c", "0"}, {"b", "1"}, {"d", "disk"}}));
  check_device_map(*model, map);
}

TEST(InferDeviceMap, EndlesslySharedModulesAreRefused) {
  nn::ModulePtr model = layer("Layer", 1);
  for (int depth = 0; depth < 40; depth++) {
    auto parent = std::make_shared<nn::CallbackModule>("Pair");
    parent->add_child("one", model);
    parent->add_child("two", model);
    model = parent;
  }
  tests::expect_error(Status::kUnsupported, "modules and tensors", [&] {
    infer_device_map(*model, MaxMemory{{"0", 1}}, {});
  });
}

TEST(InferDeviceMap, AModelOnSeveralDevices) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  model->add_parameter("one", at::empty({3}));
  EXPECT_FALSE(is_on_several_devices(*model));
  model->add_buffer("two", at::empty({3}, at::TensorOptions().device(at::kMeta)));
  EXPECT_TRUE(is_on_several_devices(*model));
}

}  // namespace infer_device_map_test
}  // namespace accel::bigmodel
