// SPDX-License-Identifier: Apache-2.0
// What JSON documents look like when they are written part by part.
#include "json/json_writer.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace accel {
namespace {

std::string written(std::string_view text, JsonEscapes escapes) {
  std::string out;
  append_json_text(out, text, escapes);
  return out;
}

TEST(JsonWriter, EscapesWhatTheReaderNeeds) {
  const std::string text = std::string("a\"\\\b\f\n\r\t\x01\x7f<&>\xc3\xa9\xf0\x9f\x98\x80") + '\0';
  EXPECT_EQ(written(text, JsonEscapes::kNeeded),
            "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f<&>\xc3\xa9\xf0\x9f\x98\x80\\u0000\"");
  EXPECT_EQ(written(text, JsonEscapes::kAscii), R"("a\"\\\b\f\n\r\t\u0001\u007f<&>\u00e9\ud83d\ude00\u0000")");
  EXPECT_EQ(written("a\x7f</&>\xff", JsonEscapes::kHtml), "\"a\\u007f\\u003c/\\u0026\\u003e\xef\xbf\xbd\"");
  for (const JsonEscapes escapes : {JsonEscapes::kNeeded, JsonEscapes::kAscii})
    EXPECT_EQ(*parse_json(written(text, escapes), "test").text(), text);
}

TEST(JsonWriter, WritesPartByPart) {
  std::string out;
  JsonWriter writer(out);
  writer.begin_object();
  writer.name("a");
  writer.number(0.1);
  writer.name("b");
  writer.number(-HUGE_VAL);
  writer.name("c");
  writer.short_number(1.0 / 3);
  writer.list("d", std::vector<int>{1, 2}, [&](int number) { writer.integer(number); });
  writer.object("e", [] {});
  writer.name("f");
  writer.value(parse_json(R"([1.50, null, true, {"x": "y"}, []])", "test"));
  writer.end_object();
  EXPECT_EQ(out, R"({"a":0.1,"b":"-Infinity","c":0.333333,"d":[1,2],"e":{},"f":[1.50,null,true,{"x":"y"},[]]})");
}

}  // namespace
}  // namespace accel
