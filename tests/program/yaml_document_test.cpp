// SPDX-License-Identifier: Apache-2.0
// YAML and JSON as trees, and back.
#include "config/yaml_document.hpp"

#include <gtest/gtest.h>

#include <string>

#include "expect_error.hpp"
#include "json/json.hpp"
#include "written_file.hpp"

namespace accel {
namespace yaml_document_test {

using tests::expect_error;

std::string as_json(const std::string& document) { return print_json(json_of(parse_yaml(document, "a.yaml"))); }

void expect_refused(const std::string& document, const char* message) {
  expect_error(Status::kInvalidArgument, message, [&document] { parse_yaml(document, "a.yaml"); });
}

TEST(Yaml, ScalarsHaveTheirKinds) {
  EXPECT_EQ(as_json("[~, null, '', yes, Off, TRUE, 'no', n]"), R"([null,null,"",true,false,true,"no","n"])");
  EXPECT_EQ(as_json("[1, -2, +3, 1_000, 0x1F, 1e8, 1.5, .5, -0.25]"), "[1,-2,3,1000,31,1e+08,1.5,0.5,-0.25]");
  EXPECT_EQ(as_json("[1.2.3, 10.0.0.7, e, 0x, '1', -, 99999999999999999999]"),
            R"(["1.2.3","10.0.0.7","e","0x","1","-",1e+20])");
  EXPECT_EQ(as_json("{\"a\": [1, {\"b\": null}], \"c\": \"\\u00e9\"}"), "{\"a\":[1,{\"b\":null}],\"c\":\"é\"}");
  EXPECT_EQ(as_json(""), "null");
}

TEST(Yaml, AliasesAreCopies) {
  EXPECT_EQ(as_json("a: &x [1, 2]\nb: *x\nc: {d: *x}\n"), R"({"a":[1,2],"b":[1,2],"c":{"d":[1,2]}})");
}

TEST(Yaml, LinesAreThoseOfTheFile) {
  const YamlNode root = parse_yaml("# first\na: 1\nb:\n  - x\n  - y\n", "a.yaml");
  EXPECT_EQ(root.entries.at(0).line, 2u);
  EXPECT_EQ(root.find("b")->items.at(1).line, 5u);
  EXPECT_EQ(root.find("c"), nullptr);
}

TEST(Yaml, HostileDocumentsAreRefused) {
  expect_refused("a: *b\n", "a.yaml:1: '*b' stands for nothing");
  expect_refused("a: &a [*a]\n", "a.yaml:1: '*a' stands for nothing");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 1; j < 10; ++j) bomb += ", " + before;
    bomb += "]\n";
  }
  expect_refused(bomb, "expected fewer values, those of aliases included");
  expect_refused(std::string(100, '['), "more than 64 lists or maps stand in each other");
  expect_refused(std::string(500000, '['), "more than 64 lists or maps stand in each other");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  expect_refused(deep, "more than 64 lists or maps");
  expect_refused("a: 1\na: 2\n", "a.yaml:2: 'a' stands twice, before at a.yaml:1");
  expect_refused(std::string("a: \0b\n", 6), "expected YAML or JSON");
  expect_refused("a: 'open\n", "expected YAML or JSON");
  expect_refused("{\"a\": 1", "expected YAML or JSON");
  expect_refused("[a]: b\n", "expected the name of an option");
  expect_refused("? {a: b}\n: c\n", "expected the name of an option");
  expect_refused("a: 1\n---\nb: 2\n", "a.yaml:2: expected one document");
  expect_refused("\xff\xfe\xff", "expected YAML or JSON");
  expect_refused("a: \xc3\x28\n", "expected YAML or JSON");
  expect_refused("%YAML 3.0\n---\na: 1\n", "expected YAML or JSON");
  expect_refused(std::string(kLargestYaml + 1, ' '), "expected a configuration of at most 1048576");
  const tests::WrittenFile huge(std::string(kLargestYaml + 1, '#'));
  expect_error(Status::kInvalidArgument, "expected a configuration of at most", [&huge] { read_yaml(huge.path()); });
}

TEST(Yaml, WhatIsWrittenIsReadAgain) {
  const std::string document =
      "{\"compute_environment\":\"LOCAL_MACHINE\",\"debug\":false,\"downcast_bf16\":\"no\",\"empty\":{},\"list\":[],"
      "\"fsdp_config\":{\"fsdp_version\":2,\"gradient_clipping\":0.7,\"names\":[\"a\",\"b: c\",\"\"]},"
      "\"main_process_ip\":\"10.0.0.7\",\"none\":null,\"time\":\"12:30\",\"text\":\"two\\nlines, é, 'quoted' # no\","
      "\"true\":\"null\",\"override\":[false,true]}";
  const std::string written = print_yaml(parse_json(document, "a.json"));
  EXPECT_EQ(as_json(written), document) << written;
}

TEST(Yaml, TheFormIsThatOfTheReference) {
  EXPECT_EQ(print_yaml(parse_json(R"({"a":"no","b":{"c":[false,"x"],"d":{}},"e":[],"f":null,"g":"text"})", "a.json")),
            "a: 'no'\nb:\n  c:\n  - false\n  - x\n  d: {}\ne: []\nf: null\ng: text\n");
}

}  // namespace yaml_document_test
}  // namespace accel
