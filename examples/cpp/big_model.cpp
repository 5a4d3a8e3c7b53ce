// Generates tokens with a Llama from a folder with its config.json and safetensors, also when it is larger than the
// accelerator or the memory:
//
//     ./big_model FOLDER --tokens 1,15043,29892 --new-tokens 20 --max-memory '{"0": "8GiB", "cpu": "16GiB"}'
//     ./big_model FOLDER --device-map '{"model.layers": "disk", "": "cpu"}'
#include <accel.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace {

using accel::Module;
using accel::Value;

constexpr const char* kUsage =
    "usage: %s FOLDER [--tokens 1,2,3] [--new-tokens 8] [--max-memory JSON] [--device-map JSON]\n";

// What the program was asked for.
struct Request {
  std::string folder;
  std::vector<std::int64_t> tokens = {1};
  std::int64_t new_tokens = 8;
  Value max_memory, device_map = "auto";
};

std::vector<std::int64_t> read_tokens(const std::string& text) {
  std::vector<std::int64_t> tokens;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) tokens.push_back(std::stoll(part));
  return tokens;
}

Request read_request(int argc, char** argv) {
  Request request;
  const auto refuse = [&] {
    std::fprintf(stderr, kUsage, argv[0]);
    std::exit(2);
  };
  if (argc < 2 || argc % 2 != 0) refuse();
  request.folder = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--tokens")
      request.tokens = read_tokens(value);
    else if (name == "--new-tokens")
      request.new_tokens = std::stoll(value);
    else if (name == "--max-memory")
      request.max_memory = Value::from_json(value);
    else if (name == "--device-map")
      request.device_map = Value::from_json(value);
    else
      refuse();
  }
  return request;
}

Module empty_model(const std::string& folder) {
  const accel::Scope empty = accel::init_empty_weights(/*include_buffers=*/false);
  Module model = Module::from_config(folder + "/config.json");
  model.train(false);
  return model;
}

// A model, and the keys and values of the tokens that it has seen.
class Generator {
 public:
  explicit Generator(Module model) : model_(std::move(model)) {}

  // The most probable one after the tokens.
  std::int64_t next(const std::vector<std::int64_t>& tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const Value output = model_.call({accel::Tensor::from_data(tokens.data(), {1, count}, ACCEL_DTYPE_INT64), past_});
    past_ = output.at(1);
    const Value last = accel::Op::find("aten::select", "int").call({output.at(0), 1, -1}).front();
    return static_cast<std::int64_t>(accel::Op::find("aten::argmax", "").call({last}).front().tensor().item());
  }

 private:
  Module model_;
  Value past_ = Value::list({});
};

// The most memory that the process has had, mapped files included.
long peak_mebibytes() {
  std::ifstream status("/proc/self/status");
  long kibibytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.compare(0, 6, "VmHWM:") == 0) kibibytes = std::strtol(line.c_str() + 6, nullptr, 10);
  return kibibytes / 1024;
}

void generate(const Request& request) {
  accel::State state = accel::State::create();
  const Module model = empty_model(request.folder);
  accel::DispatchOptions options;
  options.no_split_module_classes = "LlamaDecoderLayer";
  const Value map =
      state.load_checkpoint_and_dispatch(model, request.folder, request.device_map, request.max_memory, options);
  std::printf("parameters: %lld\n", static_cast<long long>(model.num_parameters()));
  std::printf("device map: %s\n", map.to_json().c_str());

  const accel::Scope no_grad = accel::no_grad();
  Generator generator(model);
  std::int64_t token = generator.next(request.tokens);
  const auto begin = std::chrono::steady_clock::now();
  std::printf("tokens: %lld", static_cast<long long>(token));
  for (std::int64_t i = 1; i < request.new_tokens; i++) {
    token = generator.next({token});
    std::printf(" %lld", static_cast<long long>(token));
    std::fflush(stdout);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("\ntokens a second: %.1f\n", static_cast<double>(request.new_tokens - 1) / seconds.count());
  std::printf("peak memory in MiB: %ld\n", peak_mebibytes());
  state.end_training();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    generate(read_request(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
