// SPDX-License-Identifier: Apache-2.0
// Automatic naming of checkpoints, and the removal of the oldest.
#include "checkpoint/project.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/checkpoint/project.hpp"

namespace accel::checkpoint::tests::project {
namespace {

struct Named {
  Named() {
    ProjectSettings settings;
    settings.project_dir = folder / "run";
    settings.automatic_checkpoint_naming = true;
    project.set(settings);
  }
  void set_limit(int64_t limit) {
    ProjectSettings settings = project.settings();
    settings.total_limit = std::optional<int64_t>(limit);
    project.set(settings);
  }
  void add(const std::string& name) const {
    fs::create_directories(folder / ("run/checkpoints/" + name));
    write_text(folder / ("run/checkpoints/" + name + "/model.safetensors"), "weights");
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints"))
      found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string path(const std::string& name) const { return folder / ("run/checkpoints/" + name); }

  Folder folder;
  Project project;
};

TEST(Project, NumbersOfCheckpoints) {
  EXPECT_EQ(number_of_checkpoint("checkpoint_0"), 0);
  EXPECT_EQ(number_of_checkpoint("a/b_7/checkpoint_0012"), 12);
  for (const char* name : {"checkpoint_", "checkpoint_-1", "checkpoint_1x", "checkpoint_99999999999999999999",
                           "check_1", "checkpoint_1/", ""})
    EXPECT_EQ(number_of_checkpoint(name), std::nullopt) << name;
}

TEST(Project, NeedsAutomaticNamingAndAFolder) {
  Project project;
  expect_error(Status::kInvalidArgument, "no folder is given", [&] { (void)project.next_folder(); });
  expect_error(Status::kInvalidArgument, "no folder is given", [&] { (void)project.newest_folder(); });
  ProjectSettings settings;
  settings.automatic_checkpoint_naming = true;
  project.set(settings);
  expect_error(Status::kInvalidArgument, "set project_dir", [&] { (void)project.next_folder(); });
}

TEST(Project, NamesCountOn) {
  Named named;
  EXPECT_EQ(named.project.next_folder(), named.path("checkpoint_0"));
  named.project.count_save();
  EXPECT_EQ(named.project.next_folder(), named.path("checkpoint_1"));
  named.project.require_new(named.path("checkpoint_1"));
  named.add("checkpoint_1");
  expect_error(Status::kAlreadyExists, "already exists",
               [&] { named.project.require_new(named.path("checkpoint_1")); });
}

TEST(Project, TheNewestHasTheLargestNumber) {
  Named named;
  expect_error(Status::kNotFound, "there is no checkpoint", [&] { (void)named.project.newest_folder(); });
  for (const char* name : {"checkpoint_9", "checkpoint_10", "checkpoint_x", "other_99"}) named.add(name);
  EXPECT_EQ(named.project.newest_folder(), named.path("checkpoint_10"));
  EXPECT_EQ(named.project.iteration_after(9), 11);  // 10 is there
  EXPECT_EQ(named.project.iteration_after(20), 21);
}

// A checkpoint that was copied or removed in part.
TEST(Project, TheNewestHasAllItsFiles) {
  Named named;
  for (const char* name : {"checkpoint_0", "checkpoint_2"}) fs::create_directories(named.path(name));
  EXPECT_EQ(named.project.newest_folder(), named.path("checkpoint_2"));  // none is complete: the load says so
  save_training_state(named.path("checkpoint_1"), example(0, 1), Ranks(), quick_files());
  EXPECT_EQ(named.project.newest_folder(), named.path("checkpoint_1"));
  save_training_state(named.path("checkpoint_3"), example(0, 3), Ranks(), quick_files());
  EXPECT_EQ(named.project.newest_folder(), named.path("checkpoint_3"));
  for (const auto& [name, size] : {std::pair("model.safetensors", 1), {kManifestName, 10}}) {
    const std::string path = named.path("checkpoint_3/") + name;
    const std::string whole = read_text(path);
    fs::resize_file(path, whole.size() - static_cast<size_t>(size));
    EXPECT_EQ(named.project.newest_folder(), named.path("checkpoint_1")) << name;
    write_text(path, whole);
  }
  fs::remove(named.path("checkpoint_3/") + kManifestName);  // files of our own, and no manifest
  EXPECT_EQ(named.project.newest_folder(), named.path("checkpoint_1"));
}

TEST(Project, TheOldestGo) {
  Named named;
  for (int i = 0; i < 12; i++) named.add("checkpoint_" + std::to_string(i));
  named.add("best");
  named.project.remove_oldest(named.path("checkpoint_11"), quick_files());
  EXPECT_EQ(named.names().size(), 13);  // without a limit
  named.set_limit(3);
  named.project.remove_oldest(named.path("checkpoint_11"), quick_files());
  EXPECT_EQ(named.names(), (std::vector<std::string>{"best", "checkpoint_10", "checkpoint_11", "checkpoint_9"}));
  named.set_limit(1);
  named.project.remove_oldest(named.path("checkpoint_9"), quick_files());  // what was just saved stays
  EXPECT_EQ(named.names(), (std::vector<std::string>{"best", "checkpoint_9"}));
}

TEST(Project, TheLastOneThatRanksAgreedOnStays) {
  Named named;
  for (int i = 0; i < 9; i++) named.add("checkpoint_" + std::to_string(i));
  named.set_limit(3);
  named.project.remove_oldest(named.path("checkpoint_8"), quick_files(), named.path("checkpoint_2"));
  EXPECT_EQ(named.names(), (std::vector<std::string>{"checkpoint_2", "checkpoint_7", "checkpoint_8"}));
  named.set_limit(1);  // two stay
  named.project.remove_oldest(named.path("checkpoint_8"), quick_files(), named.path("checkpoint_2"));
  EXPECT_EQ(named.names(), (std::vector<std::string>{"checkpoint_2", "checkpoint_8"}));
  named.project.remove_oldest(named.path("checkpoint_8"), quick_files(), named.path("checkpoint_8"));
  EXPECT_EQ(named.names(), std::vector<std::string>{"checkpoint_8"});
}

// A checkpoint that is being removed has no name of a checkpoint any more.
TEST(Project, WhatIsHalfRemovedIsNotVisible) {
  struct Stuck final : QuickFiles {
    int remove_tree(const char*) override {
      errno = EIO;
      return -1;
    }
  } stuck;
  Named named;
  named.add("checkpoint_0");
  named.add("checkpoint_1");
  named.set_limit(1);
  expect_error(Status::kIo, "checkpoint_0", [&] { named.project.remove_oldest(named.path("checkpoint_1"), stuck); });
  EXPECT_FALSE(fs::exists(named.path("checkpoint_0")));
  EXPECT_TRUE(fs::exists(named.path("checkpoint_1")));
}

}  // namespace
}  // namespace accel::checkpoint::tests::project
