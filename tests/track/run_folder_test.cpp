// SPDX-License-Identifier: Apache-2.0
#include "track/run_folder.hpp"

#include <sys/wait.h>

#include "expect_error.hpp"
#include "run_fixture.hpp"

namespace accel::track {
namespace {

class RunFolder : public RunFixture {};

TEST_F(RunFolder, NamesBecomeOneComponentOfAPath) {
  EXPECT_EQ(file_name_of("plain name-1.2"), "plain name-1.2");
  EXPECT_EQ(file_name_of("../../etc"), ".._.._etc");
  EXPECT_EQ(file_name_of(".."), "__");
  EXPECT_EQ(file_name_of(""), "_");
  EXPECT_EQ(file_name_of("a\nb\"c"), "a_b_c");
  EXPECT_EQ(file_name_of(std::string(10000, 'x')).size(), 200U);
  EXPECT_EQ(file_name_of(std::string(199, 'x') + "\xc3\xa9"), std::string(199, 'x'));
}

TEST_F(RunFolder, OneProcessHasTheLock) {
  make_folder(run_.folder);
  {
    const RunLock lock(run_.folder);
    tests::expect_error(Status::kIo, "process " + std::to_string(::getpid()),
                        [&] { const RunLock second(run_.folder); });
  }
  EXPECT_FALSE(std::filesystem::exists(run_.folder + "/.run.lock"));
  std::ofstream(run_.folder + "/.run.lock") << "1";  // of a process that was killed
  const RunLock lock(run_.folder);
}

TEST_F(RunFolder, FoldersAreMadeAndCopiedWithAllInside) {
  make_folder(folder_ + "/a/b/c");
  make_folder(folder_ + "/a/b/c");
  write_file(folder_ + "/a/b/c/file", "content");
  std::filesystem::create_directory_symlink(folder_ + "/a", folder_ + "/a/b/circle");
  copy_files(folder_ + "/a", folder_ + "/copy");
  EXPECT_EQ(read(folder_ + "/copy/b/c/file"), "content");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/copy/b/circle"));
  copy_files(folder_ + "/a", folder_ + "/a/b/inside");
  EXPECT_EQ(read(folder_ + "/a/b/inside/b/c/file"), "content");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a/b/inside/b/inside"));
  tests::expect_error(Status::kIo, "cannot make the folder", [&] { make_folder(folder_ + "/a/b/c/file/d"); });
  tests::expect_error(Status::kIo, "missing", [&] { copy_files(folder_ + "/missing", folder_ + "/to"); });
}

}  // namespace
}  // namespace accel::track
