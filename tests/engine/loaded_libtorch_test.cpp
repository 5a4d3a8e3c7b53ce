// SPDX-License-Identifier: Apache-2.0
// Which LibTorch is refused. That the check comes before everything else is tested in tests/torch.
#include "capi/calls/loaded_libtorch.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "base/error.hpp"

namespace accel::capi {
namespace loaded_libtorch_test {

const LoadedLibtorch kGood = {"2.13.0", "/one/libtorch_cpu.so", "/one/libc10.so", "/app/libaccel.so"};

// The message, or "" when it is not refused.
std::string refusal(const LoadedLibtorch& loaded) {
  try {
    check_libtorch(loaded, "2.13.0");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kUnsupported);
    return error.message();
  }
  return "";
}

void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " is not in " << message;
}

TEST(LoadedLibtorch, TheOneItWasBuiltForPasses) { EXPECT_EQ(refusal(kGood), ""); }

TEST(LoadedLibtorch, AnotherVersionIsRefusedWithBothVersionsAndFiles) {
  for (const char* version : {"2.12.0", "2.13.1", "3.13.0", "2.13"}) {
    LoadedLibtorch loaded = kGood;
    loaded.version = version;
    expect_words(refusal(loaded), {version, "2.13.0", "/one/libtorch_cpu.so", "/app/libaccel.so"});
  }
}

TEST(LoadedLibtorch, OneThatCannotTellItsVersionIsRefused) {
  LoadedLibtorch loaded = kGood;
  loaded.version = "";
  expect_words(refusal(loaded), {"unknown version", "2.13.0", "/one/libtorch_cpu.so"});
}

TEST(LoadedLibtorch, PartsOfTwoCopiesAreRefused) {
  LoadedLibtorch loaded = kGood;
  loaded.c10 = "/two/libc10.so";
  expect_words(refusal(loaded), {"two LibTorchs", "/one/libtorch_cpu.so", "/two/libc10.so"});
}

TEST(LoadedLibtorch, OneFolderMayBeWrittenInTwoWays) {
  LoadedLibtorch loaded = kGood;
  loaded.c10 = "/one/../one/./libc10.so";
  EXPECT_EQ(refusal(loaded), "");
}

TEST(LoadedLibtorch, ThisProcessPasses) { EXPECT_NO_THROW(require_matching_libtorch()); }

}  // namespace loaded_libtorch_test
}  // namespace accel::capi
