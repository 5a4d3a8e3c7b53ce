// SPDX-License-Identifier: Apache-2.0
// Elements of JSON documents that are read in chunks of any size.
#include "report/json_elements.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace accel::report {
namespace {

using Elements = std::vector<std::pair<std::string, std::string>>;

Elements split(const std::string& document, size_t chunk, bool* is_complete = nullptr) {
  Elements found;
  JsonElements elements("list");
  for (size_t at = 0; at < document.size(); at += chunk)
    elements.feed(std::string_view(document).substr(at, chunk),
                  [&found](std::string_view name, std::string_view element) { found.emplace_back(name, element); });
  if (is_complete != nullptr) *is_complete = elements.is_complete();
  return found;
}

TEST(JsonElements, FindsThemInChunksOfAnySize) {
  const std::string document =
      R"({"a": 1, "skipped": {"list": [9]}, "list": [ {"x": "}],\"{"}, 2,"t,]" ,[1,[2]] ], "other": [7], "b" : "c"} )";
  const Elements expected = {{"a", "1"},        {"", R"({"x": "}],\"{"})"}, {"", "2"},
                             {"", R"("t,]" )"}, {"", "[1,[2]] "},           {"b", R"("c")"}};
  for (size_t chunk = 1; chunk <= document.size(); ++chunk) {
    bool is_complete = false;
    EXPECT_EQ(split(document, chunk, &is_complete), expected) << chunk;
    EXPECT_TRUE(is_complete);
  }
}

TEST(JsonElements, TakesListsToo) {
  bool is_complete = false;
  EXPECT_EQ(split(" [1, {\"a\":[]}]\n", 3, &is_complete), (Elements{{"", "1"}, {"", "{\"a\":[]}"}}));
  EXPECT_TRUE(is_complete);
  EXPECT_EQ(split("[]", 1, &is_complete), Elements{});
  EXPECT_TRUE(is_complete);
  EXPECT_EQ(split("{}", 1, &is_complete), Elements{});
  EXPECT_TRUE(is_complete);
}

TEST(JsonElements, SaysWhetherTheDocumentHasEnded) {
  bool is_complete = true;
  EXPECT_EQ(split(R"({"list":[{"a":1},{"b")", 4, &is_complete), (Elements{{"", R"({"a":1})"}}));
  EXPECT_FALSE(is_complete);
  split("", 1, &is_complete);
  EXPECT_FALSE(is_complete);
}

TEST(JsonElements, RefusesWhatIsNoDocument) {
  for (const char* const bad : {"x", "\xff\xfe", "{1}", "{\"a\" 1}", "{\"a\":}", "[]]", "{\"list\":[}"})
    EXPECT_THROW(split(bad, 100), Error) << bad;
}

TEST(JsonElements, LeavesOutWhatIsTooLong) {
  const std::string large(JsonElements::kLongestElement, 'x');
  const Elements found = split("[\"" + large + "\",3]", 1000);
  EXPECT_EQ(found, (Elements{{"", ""}, {"", "3"}}));
}

}  // namespace
}  // namespace accel::report
