// SPDX-License-Identifier: Apache-2.0
#include "cli/compile/compile_command.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "cli/command_arguments.hpp"
#include "cli/compile/compile_model.hpp"
#include "json/json.hpp"
#include "launch/hosts/exec_program.hpp"

namespace accel::program {
namespace {

constexpr char kCompileHelp[] =
    R"(Compiles a model of torch for inference, into a package (.pt2) that accel_module_from_package() loads in every language,
without Python. MODEL is a script that has `model`, a torch.nn.Module, and `inputs`, a tuple of what it is called with, or the
folder of a model of transformers. It needs a Python with torch, and a compiler of C++; MODEL is run there.
)";

constexpr const char* kExtension = ".pt2";

struct CompileOptions {
  std::string output = "model.pt2", device = "cpu", dtype, python = "python3";
  bool dynamic_batch = false, dynamic_length = false, trusts_remote_code = false;
  int64_t max_batch = 0, length = 0;
};

void declare_compile(CLI::App& app, CompileOptions& options) {
  const auto add = [&app](const char* names, auto& value, const char* type, const char* description) {
    return app.add_option(names, value, description)->type_name(type)->group("Options");
  };
  const auto add_switch = [&app](const char* names, bool& value, const char* description) {
    app.add_flag(names, value, description)->group("Options");
  };
  add("-o,--output", options.output, "FILE", "The package. Default model.pt2");
  add("--device", options.device, "TEXT", "Device that the package computes on. Default cpu");
  add("--dtype", options.dtype, "float32|float16|bfloat16|float64",
      "Floating dtype of weights and inputs. Default: theirs")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "float64"}).description(""));
  add_switch("--dynamic-batch,--dynamic_batch", options.dynamic_batch,
             "Dimension 0 of all inputs may have any size, the same one.");
  add("--max-batch,--max_batch", options.max_batch, "N", "Largest size of that. Default: none")
      ->check(CLI::PositiveNumber);
  add_switch("--dynamic-length,--dynamic_length", options.dynamic_length,
             "Dimension 1 of all inputs may have any size, the same one.");
  add("--length", options.length, "N", "Tokens of an input of a model of transformers. Default 16")
      ->check(CLI::PositiveNumber);
  add_switch("--trust-remote-code,--trust_remote_code", options.trusts_remote_code,
             "Runs code that lies in the folder of a model.");
  add("--python", options.python, "PROGRAM", "Python that has torch. Default python3");
}

Json settings_of(const CompileOptions& options, const std::string& model) {
  Json::Members members;
  members.emplace_back("model", Json(model));
  members.emplace_back("output", Json(options.output));
  members.emplace_back("device", Json(options.device));
  members.emplace_back("dtype", options.dtype.empty() ? Json() : Json(options.dtype));
  members.emplace_back("dynamic_batch", Json(options.dynamic_batch));
  members.emplace_back("dynamic_length", Json(options.dynamic_length));
  members.emplace_back("max_batch", Json::number(options.max_batch));
  members.emplace_back("length", Json::number(options.length));
  members.emplace_back("trust_remote_code", Json(options.trusts_remote_code));
  return Json(std::move(members));
}

}  // namespace

int run_compile(const std::vector<std::string>& arguments) {
  CLI::App app(kCompileHelp, "accel compile");
  CompileOptions options;
  declare_compile(app, options);
  add_help(app, " [OPTION ...] MODEL [OPTION ...]");
  const ParsedArguments parsed = parse(app, arguments);
  if (is_shown(parsed)) return 0;
  require(!parsed.rest.empty(), Status::kInvalidArgument,
          "there is no model; expected accel compile MODEL, a script or a folder");
  const std::string model = parsed.rest.front();
  if (is_shown(parse_all(app, {parsed.rest.begin() + 1, parsed.rest.end()}))) return 0;
  std::error_code error;
  require(std::filesystem::exists(model, error), Status::kNotFound, "there is no '", model,
          "'; expected a script that has model and inputs, or the folder of a model of transformers");
  require(has_extension(options.output, kExtension), Status::kInvalidArgument, "--output is '", options.output,
          "'; expected a name that ends with ", kExtension);
  try {
    launch::exec_program({options.python, "-c", compile_model_program(), print_json(settings_of(options, model))}, {});
  } catch (const Error& failure) {
    fail(failure.status(), failure.message(),
         "; a package is made by a Python that has torch: expected --python PROGRAM, or one of the name python3");
  }
}

}  // namespace accel::program
