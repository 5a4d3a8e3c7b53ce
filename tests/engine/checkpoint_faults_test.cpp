// SPDX-License-Identifier: Apache-2.0
// Writers of checkpoints that fail or die at every step.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <tuple>

#include "accelerator/checkpoints/background_save.hpp"
#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/files/atomic_folder.hpp"
#include "checkpoint/files/file_hash.hpp"
#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace checkpoint_faults_test {

using namespace checkpoint::tests;

// Counts the calls that change the disk; from a given one on, or at that one alone, they fail or end the process.
class FailingFiles final : public QuickFiles {
 public:
  enum class Fault { kNone, kOnce, kFromThenOn, kDeath, kShort };  // the last: a write takes half of it
  FailingFiles(Fault fault, int step, bool can_exchange) : fault_(fault), step_(step), can_exchange_(can_exchange) {}
  int steps() const { return count_; }

  int create_file(const char* path) override { return faulty() ? -1 : FileSystem::create_file(path); }
  ssize_t write(int descriptor, const void* data, size_t size) override {
    if (fault_ == Fault::kShort && count_++ == step_) return FileSystem::write(descriptor, data, (size + 1) / 2);
    // Half of it arrives, as on a full disk.
    if (faulty()) return FileSystem::write(descriptor, data, size / 2) < 0 ? -1 : failure();
    return FileSystem::write(descriptor, data, size);
  }
  int sync(int) override { return faulty() ? -1 : 0; }
  int make_folder(const char* path) override { return faulty() ? -1 : FileSystem::make_folder(path); }
  int rename(const char* from, const char* to) override { return faulty() ? -1 : FileSystem::rename(from, to); }
  int exchange(const char* a, const char* b) override {
    if (faulty()) return -1;
    if (can_exchange_) return FileSystem::exchange(a, b);
    errno = EINVAL;
    return -1;
  }
  int remove_file(const char* path) override { return faulty() ? -1 : FileSystem::remove_file(path); }
  int remove_tree(const char* path) override { return faulty() ? -1 : FileSystem::remove_tree(path); }

 private:
  static int failure() {
    errno = EIO;
    return -1;
  }
  bool faulty() {
    if (fault_ == Fault::kShort) return false;
    const int step = count_++;
    if (fault_ == Fault::kNone || step < step_) return false;
    if (fault_ == Fault::kDeath) ::_exit(0);
    if (fault_ == Fault::kOnce && step > step_) return false;
    failure();
    return true;
  }

  Fault fault_;
  int step_;
  bool can_exchange_;
  int count_ = 0;
};

enum class Timing { kSynchronous, kAsynchronous };
constexpr Timing kTimings[] = {Timing::kSynchronous, Timing::kAsynchronous};

void save(const std::string& path, TrainingState state, const Ranks& ranks, FileSystem& files, Timing timing) {
  if (timing == Timing::kSynchronous) return save_training_state(path, std::move(state), ranks, files);
  auto writer = std::make_unique<TrainingStateWriter>(path, SaveOptions(), ranks, files);
  accelerator::BackgroundSave background;
  const auto copy = [&](const std::string&) {
    background.copy(state);
    return state;
  };
  state = writer->collect(copy, ranks);
  background.start(path, std::move(writer), std::move(state), ranks, [](const Ranks&) {});
  EXPECT_EQ(background.finish(), path);
}

int steps_of_saving(const std::string& path, bool can_exchange, Timing timing) {
  FailingFiles files(FailingFiles::Fault::kNone, 0, can_exchange);
  save(path, example(0, 1), Ranks(), files, timing);
  return files.steps();
}

// Whether the system can exchange two names at once, and when the state is written.
class FaultyFolder : public ::testing::TestWithParam<std::tuple<bool, Timing>> {};

TEST_P(FaultyFolder, FailureAtAnyStepLeavesACompleteState) {
  const auto [can_exchange, timing] = GetParam();
  using Fault = FailingFiles::Fault;
  for (const auto fault : {Fault::kOnce, Fault::kFromThenOn, Fault::kShort}) {
    const Folder folder;
    const std::string path = folder / "s";
    save_training_state(path, example(0, 1), Ranks(), quick_files());
    const int steps = steps_of_saving(path, can_exchange, timing);
    ASSERT_GT(steps, 20);
    for (int step = 0; step < steps; step++) {
      FailingFiles files(fault, step, can_exchange);
      bool saved = true;
      try {
        save(path, example(0, 2), Ranks(), files, timing);
      } catch (const Error& error) {
        saved = false;
        EXPECT_EQ(error.status(), Status::kIo) << error.message();
      }
      const double number = number_of(path);
      EXPECT_TRUE(number == 2 || (!saved && number == 1)) << "step " << step;
      EXPECT_TRUE(saved || fault != Fault::kShort) << "step " << step;
      save_training_state(path, example(0, 1), Ranks(), quick_files());
      EXPECT_EQ(number_of(path), 1) << "step " << step;
      EXPECT_EQ(folder.entries(), 1U) << "step " << step;
    }
  }
}

TEST_P(FaultyFolder, DeathAtAnyStepLeavesACompleteState) {
  const auto [can_exchange, timing] = GetParam();
  const Folder folder;
  const std::string path = folder / "s";
  save_training_state(path, example(0, 1), Ranks(), quick_files());
  const int steps = steps_of_saving(path, can_exchange, timing);
  for (int step = 0; step < steps; step++) {
    const TrainingState next = example(0, 2);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FailingFiles files(FailingFiles::Fault::kDeath, step, can_exchange);
      save(path, next, Ranks(), files, timing);
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "step " << step;
    const double number = number_of(path);
    EXPECT_TRUE(number == 1 || number == 2) << "step " << step;
    save_training_state(path, example(0, 1), Ranks(), quick_files());
    EXPECT_EQ(number_of(path), 1) << "step " << step;
    EXPECT_EQ(folder.entries(), 1U) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(FaultyExchange, FaultyFolder,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kTimings)));

void save_on_two_ranks(const std::string& path, double number) {
  on_ranks(2,
           [&](const Ranks& ranks) { save_training_state(path, example(ranks.rank, number), ranks, quick_files()); });
}

// 0 if the ranks have parts of different checkpoints.
double number_of_two_ranks(const std::string& path) {
  std::array<double, 2> numbers{};
  on_ranks(2, [&](const Ranks& ranks) {
    TrainingState loaded = load_training_state(path, example(ranks.rank, 0), ranks);
    const double number = model_tensors(entry_of(loaded, StateKind::kModel, 1).state).front().second.item<double>();
    if (same(loaded, example(ranks.rank, number))) numbers[static_cast<size_t>(ranks.rank)] = number;
  });
  return numbers[0] == numbers[1] ? numbers[0] : 0;
}

std::array<int, 2> steps_of_two_ranks(const std::string& path, Timing timing) {
  std::array<int, 2> steps{};
  on_ranks(2, [&](const Ranks& ranks) {
    FailingFiles files(FailingFiles::Fault::kNone, 0, true);
    save(path, example(ranks.rank, 1), ranks, files, timing);
    steps[static_cast<size_t>(ranks.rank)] = files.steps();
  });
  return steps;
}

class FaultyRanks : public ::testing::TestWithParam<Timing> {};

TEST_P(FaultyRanks, FailureOfAnyRankAtAnyStepLeavesACompleteState) {
  const Folder folder;
  const std::string path = folder / "s";
  save_on_two_ranks(path, 1);
  const auto steps = steps_of_two_ranks(path, GetParam());
  for (int failing = 0; failing < 2; failing++) {
    ASSERT_GT(steps[static_cast<size_t>(failing)], 5);
    for (int step = 0; step < steps[static_cast<size_t>(failing)]; step++) {
      std::array<bool, 2> saved{};
      on_ranks(2, [&](const Ranks& ranks) {
        using Fault = FailingFiles::Fault;
        FailingFiles files(ranks.rank == failing ? Fault::kFromThenOn : Fault::kNone, step, true);
        try {
          save(path, example(ranks.rank, 2), ranks, files, GetParam());
          saved[static_cast<size_t>(ranks.rank)] = true;
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), Status::kIo) << error.message();
        }
      });
      EXPECT_EQ(saved[0], saved[1]) << "rank " << failing << ", step " << step;
      const double number = number_of_two_ranks(path);
      EXPECT_TRUE(number == 2 || (!saved[0] && number == 1)) << "rank " << failing << ", step " << step;
      save_on_two_ranks(path, 1);
      EXPECT_EQ(number_of_two_ranks(path), 1);
      EXPECT_EQ(folder.entries(), 1U) << "rank " << failing << ", step " << step;
    }
  }
}

void send_all(int socket, const void* data, size_t size) {
  const bool is_sent = ::send(socket, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  require(is_sent, Status::kPeerLost, "the other rank is gone");
}

void receive_all(int socket, void* data, size_t size) {
  const bool is_there = size == 0 || ::recv(socket, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  require(is_there, Status::kPeerLost, "the other rank is gone");
}

// Two ranks as processes.
Ranks ranks_over(int socket, int rank) {
  Ranks ranks;
  ranks.rank = rank;
  ranks.size = 2;
  ranks.all_gather = [socket, rank](const std::string& text) {
    const size_t size = text.size();
    send_all(socket, &size, sizeof size);
    send_all(socket, text.data(), size);
    size_t other_size = 0;
    receive_all(socket, &other_size, sizeof other_size);
    std::string other(other_size, '\0');
    receive_all(socket, other.data(), other_size);
    return rank == 0 ? std::vector<std::string>{text, other} : std::vector<std::string>{other, text};
  };
  return ranks;
}

// Saves 2 on two processes, one of which dies at a step.
void save_and_die(const std::string& path, int dying, int step, Timing timing) {
  const std::array<TrainingState, 2> states = {example(0, 2), example(1, 2)};
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  std::array<pid_t, 2> children{};
  for (int rank = 0; rank < 2; rank++) {
    const auto index = static_cast<size_t>(rank);
    children[index] = ::fork();
    ASSERT_GE(children[index], 0);
    if (children[index] != 0) continue;
    ::close(sockets[1 - index]);
    FailingFiles files(rank == dying ? FailingFiles::Fault::kDeath : FailingFiles::Fault::kNone, step, true);
    try {
      save(path, states[index], ranks_over(sockets[index], rank), files, timing);
    } catch (const Error& error) {
      ::_exit(error.status() == Status::kPeerLost ? 0 : 1);
    }
    ::_exit(0);
  }
  for (const int socket : sockets) ::close(socket);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "step " << step;
  }
}

TEST_P(FaultyRanks, DeathOfAnyRankAtAnyStepLeavesACompleteState) {
  const Folder folder;
  const std::string path = folder / "s";
  save_on_two_ranks(path, 1);
  const auto steps = steps_of_two_ranks(path, GetParam());
  for (int dying = 0; dying < 2; dying++) {
    for (int step = 0; step < steps[static_cast<size_t>(dying)]; step++) {
      save_and_die(path, dying, step, GetParam());
      const double number = number_of_two_ranks(path);
      EXPECT_TRUE(number == 1 || number == 2) << "rank " << dying << ", step " << step;
      save_on_two_ranks(path, 1);
      EXPECT_EQ(number_of_two_ranks(path), 1);
      EXPECT_EQ(folder.entries(), 1U) << "rank " << dying << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FaultyTiming, FaultyRanks, ::testing::ValuesIn(kTimings));

TEST(FaultyDisk, WhereNothingMayBeWrittenIsAnError) {
  const Folder folder;
  fs::create_directory(folder / "kept");
  save_training_state(folder / "kept/s", example(0, 1), Ranks(), quick_files());
  constexpr auto kRead = static_cast<fs::perms>(0555);  // the group, too
  fs::permissions(folder / "", kRead, fs::perm_options::add);
  for (const auto& entry : fs::recursive_directory_iterator(folder / "kept"))  // whatever the umask is
    fs::permissions(entry.path(), kRead, fs::perm_options::add);
  fs::permissions(folder / "kept", kRead);
  constexpr uid_t kNobody = 65534;
  const uid_t user = ::geteuid();
  ASSERT_TRUE(user != 0 || ::seteuid(kNobody) == 0);  // the administrator may write everywhere
  expect_error(Status::kIo, "cannot make the folder",
               [&] { save_training_state(folder / "kept/s", example(0, 2), Ranks(), quick_files()); });
  ASSERT_EQ(::seteuid(user), 0);
  fs::permissions(folder / "kept", fs::perms::owner_all);
  EXPECT_EQ(number_of(folder / "kept/s"), 1);
}

class FullDisk final : public QuickFiles {
 public:
  explicit FullDisk(size_t room) : room_(room) {}
  ssize_t write(int descriptor, const void* data, size_t size) override {
    const size_t fits = std::min(size, room_);
    room_ -= fits;
    if (fits > 0) return FileSystem::write(descriptor, data, fits);
    errno = ENOSPC;
    return -1;
  }

 private:
  size_t room_;
};

TEST(FaultyDisk, AFullOneIsNamedAndLeavesTheFormerState) {
  const Folder folder;
  const std::string path = folder / "s";
  save_training_state(path, example(0, 1), Ranks(), quick_files());
  for (const size_t room : {0U, 100U, 1000U, 4000U}) {
    FullDisk files(room);
    expect_error(Status::kIo, "No space left", [&] { save_training_state(path, example(0, 2), Ranks(), files); });
    EXPECT_EQ(number_of(path), 1);
    EXPECT_EQ(folder.entries(), 1U);
  }
}

// What the manifest says of each file: its size, its contents, its name.
TEST(FaultyDisk, DamagedFilesAreNamed) {
  const Folder folder;
  const std::string path = folder / "s";
  save_training_state(path, example(0, 1), Ranks(), quick_files());
  const auto expect_named = [&](const std::string& name) {
    expect_error(Status::kCorrupt, name.c_str(), [&] { number_of(path); });
  };
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename(), file = path + "/" + name, contents = read_text(file);
    write_text(file, contents.substr(0, contents.size() / 2));
    expect_named(name);
    for (size_t at = 0; at < contents.size(); at += std::max<size_t>(contents.size() / 7, 1)) {
      std::string flipped = contents;
      flipped[at] ^= 0x10;
      write_text(file, flipped);
      expect_named(name);
    }
    write_text(file, contents);
  }
  const std::string model = read_text(path + "/model.safetensors");
  write_text(path + "/model.safetensors", read_text(path + "/model_1.safetensors"));
  write_text(path + "/model_1.safetensors", model);
  expect_named("model");
  write_text(path + "/model_1.safetensors", read_text(path + "/model.safetensors"));
  write_text(path + "/model.safetensors", model);
  EXPECT_EQ(number_of(path), 1);
}

TEST(FaultyFile, FailureAtAnyStepLeavesACompleteFile) {
  const Folder folder;
  const std::string path = folder / "t";
  const auto number = [&] { return load_safetensors(path).tensors[0].second.sum().item<double>(); };
  save_safetensors(path, {{"a", at::ones({1})}}, {});
  for (int step = 0;; step++) {
    FailingFiles files(FailingFiles::Fault::kOnce, step, true);
    try {
      save_safetensors(path, {{"a", at::full({1}, 2.0F)}}, {}, files);
      break;  // the fault lies behind the last step
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kIo);
    }
    EXPECT_TRUE(number() == 1 || number() == 2);
    EXPECT_EQ(folder.entries(), 1U) << "step " << step;
  }
  EXPECT_EQ(number(), 2);
}

// Accepts less than it is given now and then, as a signal or a nearly full disk makes it; may know no direct writes, or
// notice only when it writes.
class ReluctantFiles final : public FileSystem {
 public:
  enum class Direct { kYes, kNo, kNotReally };
  ReluctantFiles(Direct direct, size_t most) : direct_(direct), most_(most) {}
  int set_direct(int descriptor, bool on) override {
    is_on_ = on;
    if (direct_ == Direct::kYes) return FileSystem::set_direct(descriptor, on);
    errno = EINVAL;
    return direct_ == Direct::kNo ? -1 : 0;
  }
  ssize_t write(int descriptor, const void* data, size_t size) override {
    errno = EINVAL;
    if (direct_ == Direct::kNotReally && is_on_) return -1;
    return FileSystem::write(descriptor, data, std::min(size, most_));
  }
  bool is_on() const { return is_on_; }

 private:
  Direct direct_;
  size_t most_;
  bool is_on_ = false;
};

TEST(FaultyFile, LargeFilesAreWhatWasWrittenWhateverTheSystemAccepts) {
  using Direct = ReluctantFiles::Direct;
  constexpr size_t kMost = size_t{9} << 20;
  std::string data((size_t{40} << 20) + 123, '\0');
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<char>(i * 31 + i / 997);
  for (const Direct direct : {Direct::kYes, Direct::kNo, Direct::kNotReally}) {
    for (const size_t most : {data.size(), kMost, kMost + 77}) {
      const Folder folder;
      ReluctantFiles files(direct, most);
      OutputFile output(folder / "t", files);
      for (size_t i = 0; i < data.size(); i += size_t{7} << 20)
        output.write(data.data() + i, std::min(size_t{7} << 20, data.size() - i));
      output.finish();
      EXPECT_EQ(output.size(), data.size());
      EXPECT_EQ(output.hash(), hash_of_file(MappedFile(folder / "t")));
      EXPECT_EQ(read_text(folder / "t"), data);
    }
  }
}

// A disk that takes 40 ms for a block, and notes how the blocks are written.
class SlowDisk final : public FileSystem {
 public:
  explicit SlowDisk(bool durable) : durable_(durable) {}
  bool is_durable() const override { return durable_; }
  int set_direct(int descriptor, bool on) override {
    is_on_ = on;
    return FileSystem::set_direct(descriptor, on);
  }
  ssize_t write(int descriptor, const void* data, size_t size) override {
    (is_on_ ? direct_ : cached_)++;
    if (is_on_) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return FileSystem::write(descriptor, data, size);
  }
  int direct() const { return direct_; }
  int cached() const { return cached_; }

 private:
  bool durable_;
  bool is_on_ = false;
  int direct_ = 0, cached_ = 0;
};

TEST(FaultyFile, WhatNeedNotBeDurableDoesNotWaitForASlowDisk) {
  const std::string data(size_t{64} << 20, 'x');
  for (const bool durable : {true, false}) {
    const Folder folder;
    SlowDisk files(durable);
    OutputFile output(folder / "t", files);
    output.write(data.data(), data.size());
    output.finish();
    EXPECT_EQ(read_text(folder / "t"), data);
    if (files.direct() == 0) GTEST_SKIP() << "this file system writes through the page cache only";
    EXPECT_EQ(files.cached() > 0, !durable) << files.direct();
  }
}

TEST(FaultyFile, AFailureOfTheWriterSurfaces) {
  const Folder folder;
  const std::string data(size_t{20} << 20, 'x');
  FailingFiles files(FailingFiles::Fault::kOnce, 1, true);
  OutputFile output(folder / "t", files);
  output.write(data.data(), data.size());
  expect_error(Status::kIo, "cannot write", [&] {
    output.write(data.data(), data.size());
    output.finish();
  });
}

class RecordingFiles final : public FileSystem {
 public:
  int create_file(const char* path) override { return record("create", FileSystem::create_file(path)); }
  int sync(int descriptor) override { return record("sync", FileSystem::sync(descriptor)); }
  int rename(const char* from, const char* to) override { return record("rename", FileSystem::rename(from, to)); }
  int exchange(const char* a, const char* b) override { return record("exchange", FileSystem::exchange(a, b)); }
  int remove_tree(const char* path) override { return record("remove", FileSystem::remove_tree(path)); }
  std::vector<std::string> take() { return std::exchange(calls_, {}); }

 private:
  int record(const char* call, int result) {
    calls_.emplace_back(call);
    return result;
  }
  std::vector<std::string> calls_;
};

TEST(FaultyFile, NothingGetsItsNameBeforeItIsDurable) {
  const Folder folder;
  RecordingFiles files;
  save_safetensors(folder / "t", {}, {}, files);
  EXPECT_EQ(files.take(), (std::vector<std::string>{"create", "sync", "rename", "sync"}));
  for (const char* naming : {"rename", "exchange"}) {
    save_training_state(folder / "s", example(0, 1), Ranks(), files);
    std::vector<std::string> expected;
    for (int file = 0; file < 8; file++) expected.insert(expected.end(), {"create", "sync"});
    expected.insert(expected.end(), {"sync", naming, "sync"});
    if (naming == std::string("exchange")) expected.emplace_back("remove");
    EXPECT_EQ(files.take(), expected);
  }
}

// A disk that says yes and keeps something else of one of the writes.
class LyingFiles final : public QuickFiles {
 public:
  explicit LyingFiles(int step) : step_(step) {}
  bool has_lied() const { return count_ > step_; }
  ssize_t write(int descriptor, const void* data, size_t size) override {
    std::string bytes(static_cast<const char*>(data), size);
    if (count_++ == step_) bytes[std::min<size_t>(20, size - 1)] ^= 1;
    return FileSystem::write(descriptor, bytes.data(), size);
  }

 private:
  int step_;
  int count_ = 0;
};

TEST(FaultyDisk, WhatDoesNotComeBackReplacesNothing) {
  const Folder folder;
  save_training_state(folder / "s", example(0, 1), Ranks(), quick_files());
  save_safetensors(folder / "t", {{"a", at::ones({1})}}, {}, quick_files());
  for (int step = 0;; step++) {
    LyingFiles files(step);
    try {
      save_training_state(folder / "s", example(0, 2), Ranks(), files);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kIo) << error.message();
      EXPECT_NE(error.message().find("does not come back"), std::string::npos) << error.message();
    }
    if (!files.has_lied()) break;
    EXPECT_EQ(number_of(folder / "s"), 1) << "step " << step;
  }
  EXPECT_EQ(number_of(folder / "s"), 2);
  LyingFiles files(0);
  expect_error(Status::kIo, "does not come back", [&] {
    save_safetensors(folder / "t", {{"a", at::full({1}, 2.0F)}}, {}, files);
  });
  EXPECT_EQ(load_safetensors(folder / "t").tensors[0].second.item<float>(), 1);
  EXPECT_EQ(folder.entries(), 2U);
}

// Another program that takes the name in the last moment.
class RacingFiles final : public QuickFiles {
 public:
  int rename(const char* from, const char* to) override {
    if (std::exchange(is_first_, false)) save_training_state(to, example(0, 1), Ranks(), quick_files());
    return FileSystem::rename(from, to);
  }

 private:
  bool is_first_ = true;
};

// Regression: two programs saved the same checkpoint of automatic naming, and the later one removed the other's.
TEST(FaultyWriter, TwoThatWriteOneNameLeaveACompleteState) {
  const Folder folder;
  const std::string path = folder / "s";
  for (const bool may_replace : {true, false}) {
    fs::remove_all(path);
    RacingFiles files;
    SaveOptions options;
    options.may_replace = may_replace;
    const auto save = [&] { save_training_state(path, example(0, 2), Ranks(), files, options); };
    if (may_replace)
      save();
    else
      expect_error(Status::kAlreadyExists, "another program writes it", save);
    EXPECT_EQ(number_of(path), may_replace ? 2 : 1);
    EXPECT_EQ(folder.entries(), 1U);
  }
  std::vector<std::thread> programs;
  for (int program = 0; program < 3; program++)
    programs.emplace_back([&, program] {
      for (int save = 0; save < 30; save++) save_training_state(path, example(0, program + 3), Ranks(), quick_files());
    });
  for (std::thread& program : programs) program.join();
  EXPECT_GE(number_of(path), 3);
  EXPECT_EQ(folder.entries(), 1U);
}

// Regression: with `verify` 0, or on several ranks, a checkpoint that was replaced while it was loaded came back as a
// mixture.
TEST(FaultyWriter, WhatIsReplacedWhileItIsReadIsNoMixture) {
  const Folder folder;
  const std::string path = folder / "s";
  save_on_two_ranks(path, 1);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int save = 0; !done; save++) {
      save_on_two_ranks(path, save % 2 + 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(save % 5));
    }
  });
  int loaded = 0;
  for (int round = 0; round < 150; round++) {
    std::array<double, 2> numbers{};
    on_ranks(2, [&](const Ranks& ranks) {
      try {
        LoadOptions unverified;
        unverified.verify = false;
        TrainingState state = checkpoint::load_training_state(path, example(ranks.rank, 0), unverified, ranks).entries;
        const double number = model_tensors(entry_of(state, StateKind::kModel, 1).state).front().second.item<double>();
        EXPECT_TRUE(same(state, example(ranks.rank, number)));
        numbers[static_cast<size_t>(ranks.rank)] = number;
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("was replaced by another program"), std::string::npos) << error.message();
      }
    });
    EXPECT_EQ(numbers[0], numbers[1]);
    loaded += numbers[0] > 0 ? 1 : 0;
  }
  done = true;
  writer.join();
  EXPECT_GT(loaded, 10);
}

// A writer of this host that dies with its temporary folder on the disk.
void die_while_saving(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const AtomicFolder folder(path);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

// Regression: a save that was killed left its temporary folder for ever.
TEST(FaultyWriter, LeftoversOfAnyNameGoWithTheNextSave) {
  const Folder folder;
  die_while_saving(folder / "step_1");
  die_while_saving(folder / "step_2");
  ASSERT_EQ(folder.entries(), 1U);  // the second writer has removed what the first one left
  const AtomicFolder alive(folder / "step_3");
  fs::create_directory(folder / ".step_4.accel-0000000000000000");           // of another host
  fs::create_directory(temporary_sibling(Target(folder / "step_5"), true));  // perhaps the only copy
  fs::create_directory(folder / ".step_6.accel-00000000");
  fs::create_directory(folder / "step_7.accel-0000000000000000");
  save_training_state(folder / "step_8", example(0, 1), Ranks(), quick_files());
  EXPECT_TRUE(fs::exists(alive.temporary()));
  EXPECT_EQ(folder.entries(), 6U);
}

TEST(FaultyFile, FilesOfLivingWritersAreLeftAlone) {
  const Folder folder;
  AtomicFile first(folder / "t");
  save_safetensors(folder / "t", {}, {});
  write_text(folder / ".t.accel-0123456789abcdef", "a leftover");
  write_text(folder / ".t.accel-notes", "none of ours");
  save_safetensors(folder / "t", {}, {});
  EXPECT_FALSE(fs::exists(folder / ".t.accel-0123456789abcdef"));
  EXPECT_TRUE(fs::exists(folder / ".t.accel-notes"));
  first.output().write("{}", 2);
  first.commit();
  EXPECT_EQ(read_text(folder / "t"), "{}");
}

}  // namespace checkpoint_faults_test
}  // namespace accel::checkpoint
