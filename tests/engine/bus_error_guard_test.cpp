// SPDX-License-Identifier: Apache-2.0
// A mapped file that becomes shorter while it is read is an error, not the end of the process.
#include "os/bus_error_guard.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <memory>

#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint_fixture.hpp"
#include "os/mapped_file.hpp"

namespace accel {
namespace bus_error_guard_test {

using namespace checkpoint::tests;

constexpr size_t kPage = 4096;

size_t count_of_ones(const MappedFile& file) {
  const std::string_view text = file.text();
  return static_cast<size_t>(std::count(text.begin(), text.end(), '1'));
}

TEST(BusErrorGuard, LostPagesAreZerosAndAnError) {
  const Folder folder;
  write_text(folder / "f", std::string(10 * kPage, '1'));
  const MappedFile file(folder / "f");
  {
    const BusErrorGuard guard;
    EXPECT_EQ(count_of_ones(file), 10 * kPage);
    guard.check();
  }
  ASSERT_EQ(::truncate(file.path().c_str(), 3 * kPage), 0);
  const BusErrorGuard guard;
  EXPECT_EQ(count_of_ones(file), 3 * kPage);
  expect_error(Status::kIo, "'" + file.path() + "' became shorter", [&] { guard.check(); });
}

TEST(BusErrorGuard, AFileThatIsNotMappedAnyMoreIsNamed) {
  const Folder folder;
  write_text(folder / "f", std::string(2 * kPage, '1'));
  const BusErrorGuard outer;
  {
    const MappedFile file(folder / "f");
    ASSERT_EQ(::truncate(file.path().c_str(), 0), 0);
    EXPECT_EQ(count_of_ones(file), 0U);
  }
  expect_error(Status::kIo, "/f' became shorter", [&] { outer.check(); });
  const BusErrorGuard inner;  // reports it too: reads of the outer one's time are not told apart
  EXPECT_THROW(inner.check(), Error);
}

TEST(BusErrorGuard, ReadersOfFilesAreGuarded) {
  const Folder folder;
  for (const bool safe : {true, false}) {
    checkpoint::save_value(folder / "v", map_of({{"a", at::ones({4000})}}), safe, {}, quick_files());
    const auto file = std::make_shared<const MappedFile>(folder / "v");
    ASSERT_EQ(::truncate(file->path().c_str(), 0), 0);
    EXPECT_THROW(safe ? (void)checkpoint::read_safetensors(file) : (void)checkpoint::read_torch_file(file), Error);
  }
}

sigjmp_buf jump;
void jump_back(int) { siglongjmp(jump, 1); }

// A mapping that is not ours, of a file that became shorter.
TEST(BusErrorGuard, OtherFaultsGoToTheHandlerOfTheProgram) {
  struct sigaction mine = {}, before = {}, after = {};
  mine.sa_handler = jump_back;
  ::sigaction(SIGBUS, &mine, &before);
  const Folder folder;
  write_text(folder / "f", std::string(kPage, '1'));
  const std::string path = folder / "f";
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  const auto* const page = static_cast<volatile char*>(::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, descriptor, 0));
  ::close(descriptor);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  {
    const BusErrorGuard guard;
    volatile bool has_jumped = false;
    if (sigsetjmp(jump, 1) == 0)
      (void)*page;
    else
      has_jumped = true;
    EXPECT_TRUE(has_jumped);
    guard.check();
  }
  ::munmap(const_cast<char*>(page), kPage);
  ::sigaction(SIGBUS, &before, &after);
  EXPECT_EQ(after.sa_handler, jump_back);  // the guard put it back
}

}  // namespace bus_error_guard_test
}  // namespace accel
