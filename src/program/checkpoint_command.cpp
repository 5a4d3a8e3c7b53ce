// The program `accel-checkpoint`: the commands `accel checkpoint`, `accel merge-weights` and `accel estimate-memory`.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <accel.hpp>
#include "program/checkpoint_arguments.hpp"
#include "program/command_arguments.hpp"
#include "program/estimate_command.hpp"
#include "program/self_test_command.hpp"

namespace accel::program {
namespace {

enum ExitStatus : int { kSuccess = 0, kDifferent = 1, kWrongUsage = 2, kFailed = 3 };

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

int verify(const std::string& folder) {
  const cpp::Value report = cpp::checkpoint_verify(folder);
  for (const cpp::Value& problem : report.at("problems").items()) std::printf("%s\n", problem.string().c_str());
  const auto problems = report.at("problems").items().size();
  std::printf("%s: %lld files, %s: %s\n", folder.c_str(), static_cast<long long>(number_of(report, "files")),
              size_text(number_of(report, "bytes")).c_str(), problems == 0 ? "all as they were written" : "damaged");
  return problems == 0 ? kSuccess : kDifferent;
}

int list(const std::string& folder) {
  for (const cpp::Value& one : cpp::checkpoint_list(folder).items()) {
    const cpp::Value ranks = one.at("world_size"), iteration = one.at("iteration");
    std::printf("%s  %s%lld files, %s%s%s\n", text_of(one, "path").c_str(),
                iteration.is_none() ? "" : ("iteration " + std::to_string(iteration.integer()) + ", ").c_str(),
                static_cast<long long>(number_of(one, "files")), size_text(number_of(one, "bytes")).c_str(),
                ranks.is_none() ? "" : (", of " + std::to_string(ranks.integer()) + " ranks").c_str(),
                one.at("complete").boolean() ? "" : "  NOT COMPLETE");
  }
  return kSuccess;
}

std::string shape_text(const cpp::Value& shape) {
  std::string text;
  for (const cpp::Value& size : shape.items()) text += (text.empty() ? "" : ", ") + std::to_string(size.integer());
  return "[" + text + "]";
}

int show(const std::string& folder) {
  const cpp::Value contents = cpp::checkpoint_show(folder);
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
  return kSuccess;
}

int compare(const std::string& folder, const std::string& other) {
  const cpp::Value report = cpp::checkpoint_diff(folder, other);
  bool differ = false;
  const auto print = [&](const char* key, const char* mark) {
    for (const cpp::Value& name : report.at(key).items()) {
      std::printf("%s %s\n", mark, name.string().c_str());
      differ = true;
    }
  };
  print("only_in_first", "-");
  print("only_in_second", "+");
  print("different", "!");
  std::printf("%zu files are equal\n", report.at("equal").items().size());
  return differ ? kDifferent : kSuccess;
}

int run_checkpoint(const std::vector<std::string>& arguments) {
  CLI::App app;
  declare_checkpoint(app);
  const ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return std::fputs(parsed.shown->c_str(), stdout) < 0;
  std::vector<std::string> rest = parsed.rest;
  if (rest.empty()) wrong_usage("no command is given; expected verify, list, show or diff");
  const std::string command = rest.front();
  if (command == "list" && rest.size() == 1) rest.emplace_back(".");
  const size_t folders = command == "diff" ? 2 : 1;
  if (command != "verify" && command != "list" && command != "show" && command != "diff")
    wrong_usage("'" + command + "' is not a command; expected verify, list, show or diff");
  if (rest.size() != folders + 1)
    wrong_usage("accel checkpoint " + command + " was given " + std::to_string(rest.size() - 1) +
                " folders; expected " + std::to_string(folders));
  if (command == "verify") return verify(rest[1]);
  if (command == "list") return list(rest[1]);
  if (command == "show") return show(rest[1]);
  return compare(rest[1], rest[2]);
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
