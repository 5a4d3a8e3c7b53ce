// SPDX-License-Identifier: Apache-2.0
// The program `accel-checkpoint`: the commands `accel checkpoint`, `accel merge-weights` and `accel estimate-memory`.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <accel.hpp>
#include "cli/checkpoint/estimate_command.hpp"
#include "cli/checkpoint/self_test_command.hpp"
#include "cli/checkpoint_arguments.hpp"
#include "cli/command_arguments.hpp"
#include "cli/exit_status.hpp"

namespace accel::program {
namespace {

[[noreturn]] void wrong_usage(const std::string& message) { throw std::invalid_argument(message); }

std::string text_of(const cpp::Value& map, const char* key) { return map.at(key).string(); }
std::int64_t number_of(const cpp::Value& map, const char* key) { return map.at(key).integer(); }

std::string size_text(std::int64_t bytes) {
  const char* unit = "bytes";
  double size = static_cast<double>(bytes);
  for (const char* const larger : {"KB", "MB", "GB", "TB"}) {
    if (size < 1000) break;
    size /= 1000;
    unit = larger;
  }
  char line[64];
  std::snprintf(line, sizeof line, bytes < 1000 ? "%.0f %s" : "%.1f %s", size, unit);
  return line;
}

int status_of_verify(const cpp::Value& report) { return report.at("problems").items().empty() ? kSuccess : kDifferent; }

int status_of_diff(const cpp::Value& report) {
  for (const char* const key : {"only_in_first", "only_in_second", "different"})
    if (!report.at(key).items().empty()) return kDifferent;
  return kSuccess;
}

void print_verified(const cpp::Value& report, const std::string& folder) {
  for (const cpp::Value& problem : report.at("problems").items()) std::printf("%s\n", problem.string().c_str());
  const auto problems = report.at("problems").items().size();
  std::printf("%s: %lld files, %s: %s\n", folder.c_str(), static_cast<long long>(number_of(report, "files")),
              size_text(number_of(report, "bytes")).c_str(), problems == 0 ? "all as they were written" : "damaged");
}

void print_list(const cpp::Value& checkpoints) {
  for (const cpp::Value& one : checkpoints.items()) {
    const cpp::Value ranks = one.at("world_size"), iteration = one.at("iteration");
    std::printf("%s  %s%lld files, %s%s%s\n", text_of(one, "path").c_str(),
                iteration.is_none() ? "" : ("iteration " + std::to_string(iteration.integer()) + ", ").c_str(),
                static_cast<long long>(number_of(one, "files")), size_text(number_of(one, "bytes")).c_str(),
                ranks.is_none() ? "" : (", of " + std::to_string(ranks.integer()) + " ranks").c_str(),
                one.at("complete").boolean() ? "" : "  NOT COMPLETE");
  }
}

std::string shape_text(const cpp::Value& shape) {
  std::string text;
  for (const cpp::Value& size : shape.items()) text += (text.empty() ? "" : ", ") + std::to_string(size.integer());
  return "[" + text + "]";
}

void print_contents(const cpp::Value& contents) {
  const cpp::Value manifest = contents.at("manifest");
  if (manifest.is_none())
    std::printf("no manifest: not written by libaccel\n");
  else
    std::printf("libaccel %s, LibTorch %s, %lld ranks, iteration %lld\n", text_of(manifest, "library").c_str(),
                text_of(manifest, "libtorch").c_str(), static_cast<long long>(number_of(manifest, "world_size")),
                static_cast<long long>(number_of(manifest, "iteration")));
  for (const cpp::Value& file : contents.at("files").items()) {
    std::printf("%s  %s\n", text_of(file, "name").c_str(), size_text(number_of(file, "bytes")).c_str());
    const auto tensors = file.find("tensors");
    if (!tensors) continue;
    for (const cpp::Value& tensor : tensors->items())
      std::printf("    %s  %s %s\n", text_of(tensor, "name").c_str(), text_of(tensor, "dtype").c_str(),
                  shape_text(tensor.at("shape")).c_str());
  }
}

void print_differences(const cpp::Value& report) {
  const auto print = [&](const char* key, const char* mark) {
    for (const cpp::Value& name : report.at(key).items()) std::printf("%s %s\n", mark, name.string().c_str());
  };
  print("only_in_first", "-");
  print("only_in_second", "+");
  print("different", "!");
  std::printf("%zu files are equal\n", report.at("equal").items().size());
}

// The report of a command as JSON, or as lines.
template <typename Print>
void print_report(const cpp::Value& report, bool json, const Print& print) {
  if (json)
    std::printf("%s\n", report.to_json().c_str());
  else
    print(report);
}

int run_checkpoint(const std::vector<std::string>& arguments) {
  CLI::App app;
  bool json = false;
  declare_checkpoint(app, json);
  const ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return std::fputs(parsed.shown->c_str(), stdout) < 0;
  std::vector<std::string> rest;
  for (const std::string& argument : parsed.rest) {
    if (argument == "--json")
      json = true;
    else
      rest.push_back(argument);
  }
  if (rest.empty()) wrong_usage("no command is given; expected verify, list, show or diff");
  const std::string command = rest.front();
  if (command == "list" && rest.size() == 1) rest.emplace_back(".");
  const size_t folders = command == "diff" ? 2 : 1;
  if (command != "verify" && command != "list" && command != "show" && command != "diff")
    wrong_usage("'" + command + "' is not a command; expected verify, list, show or diff");
  if (rest.size() != folders + 1)
    wrong_usage("accel checkpoint " + command + " was given " + std::to_string(rest.size() - 1) +
                " folders; expected " + std::to_string(folders));
  if (command == "verify") {
    const cpp::Value report = cpp::checkpoint_verify(rest[1]);
    print_report(report, json, [&](const cpp::Value& verified) { print_verified(verified, rest[1]); });
    return status_of_verify(report);
  }
  if (command == "diff") {
    const cpp::Value report = cpp::checkpoint_diff(rest[1], rest[2]);
    print_report(report, json, print_differences);
    return status_of_diff(report);
  }
  if (command == "list")
    print_report(cpp::checkpoint_list(rest[1]), json, print_list);
  else
    print_report(cpp::checkpoint_show(rest[1]), json, print_contents);
  return kSuccess;
}

int run_merge(const std::vector<std::string>& arguments) {
  CLI::App app;
  MergeArguments given;
  declare_merge_weights(app, given);
  const ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return std::fputs(parsed.shown->c_str(), stdout) < 0;
  std::vector<std::string> folders;
  for (const std::string& argument : parsed.rest) {
    if (argument == "--unsafe-serialization" ||
        argument == "--unsafe_serialization")  // Accelerate's scripts end with it
      given.unsafe_serialization = true;
    else
      folders.push_back(argument);
  }
  if (folders.size() != 2)
    wrong_usage("accel merge-weights was given " + std::to_string(folders.size()) +
                " folders; expected CHECKPOINT_FOLDER DESTINATION");
  cpp::MergeWeightsOptions options;
  options.safe_serialization = given.unsafe_serialization ? 0 : 1;
  options.remove_checkpoint_dir = given.remove_checkpoint_dir ? 1 : 0;
  cpp::merge_weights(folders[0], folders[1], options);
  return kSuccess;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) wrong_usage("no command is given; expected checkpoint, merge-weights or estimate-memory");
  const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "estimate-memory") return run_estimate_memory(others);
  if (arguments.front() == "self-test") return run_self_test(others);
  return arguments.front() == "merge-weights" ? run_merge(others) : run_checkpoint(others);
}

}  // namespace
}  // namespace accel::program

int main(int count, char** arguments) {
  try {
    return accel::program::run({arguments + 1, arguments + count});
  } catch (const accel::cpp::Error& error) {  // of the library
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::kFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::kWrongUsage;
  }
}
