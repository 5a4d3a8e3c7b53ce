// Makes a small GPT-2 and keeps it in a folder as configuration and weights, then loads it from there, as any other
// GPT-2, and embeds texts with it. The processes share the texts:
//
//     accel launch --num-processes 2 -- ./embed FOLDER
#include <accel.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace {

using accel::Module;
using accel::Value;

constexpr int kWidth = 16;
constexpr const char* kConfig =
    R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2})";
const std::vector<std::string> kTexts = {"the cat sat on the mat", "a cat sat on a mat", "gradients are averaged"};

void make_model(accel::State& state, const std::string& folder) {
  state.set_seed(7, false, false);
  state.save_model(Module::from_config(kConfig), folder);
  std::ofstream file(folder + "/config.json");
  file << kConfig;
  file.close();
  if (!file) throw std::runtime_error(folder + "/config.json cannot be written");
}

Module load_model(const std::string& folder) {
  Module model = Module::from_config(folder + "/config.json");
  model.load_state_dict(accel::load(folder + "/model.safetensors"), true);
  model.train(false);
  return model;
}

// The mean of the last hidden states, which a hook keeps: [1, kWidth].
class Embedder {
 public:
  explicit Embedder(Module model) : model_(std::move(model)) {
    model_.child("transformer.ln_f").add_hook(ACCEL_HOOK_FORWARD, [this](const Module&, const Value& values) {
      hidden_ = values.at(0);
      return Value();
    });
  }
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  Value embed(const std::string& text) {
    const std::vector<std::int64_t> tokens(text.begin(), text.end());
    const auto length = static_cast<std::int64_t>(tokens.size());
    model_.call({accel::Tensor::from_data(tokens.data(), {1, length}, ACCEL_DTYPE_INT64)});
    return accel::Op::find("aten::mean", "dim").call({hidden_, Value::list({1})}).front();
  }

 private:
  Module model_;
  Value hidden_;
};

double product(const float* a, const float* b) {
  double sum = 0;
  for (int i = 0; i < kWidth; i++) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double similarity(const float* a, const float* b) {
  return product(a, b) / (std::sqrt(product(a, a)) * std::sqrt(product(b, b)));
}

void print_embeddings(const accel::Tensor& all) {
  const auto row = [data = static_cast<const float*>(all.data())](std::size_t i) { return data + i * kWidth; };
  for (std::size_t i = 0; i < kTexts.size(); i++)
    std::printf("text %zu: %.4f %.4f %.4f %.4f\n", i + 1, row(i)[0], row(i)[1], row(i)[2], row(i)[3]);
  for (std::size_t i = 1; i < kTexts.size(); i++)
    std::printf("similarity 1 %zu: %.4f\n", i + 1, similarity(row(0), row(i)));
}

void embed(const std::string& folder) {
  accel::StateOptions options;
  options.cpu = 1;
  accel::State state = accel::State::create(options);
  if (state.is_main_process()) make_model(state, folder);
  state.wait_for_everyone();

  const Module model = load_model(folder);
  if (state.is_main_process()) std::printf("parameters: %lld\n", static_cast<long long>(model.num_parameters()));
  Embedder embedder(model);
  const accel::Scope no_grad = accel::no_grad();
  // The share of this process.
  const auto [begin, end] = state.split_range(static_cast<std::int64_t>(kTexts.size()));
  std::vector<Value> rows;
  for (std::int64_t i = begin; i < end; i++) rows.push_back(embedder.embed(kTexts[static_cast<std::size_t>(i)]));
  const Value all = state.gather_uneven(accel::concatenate(Value::list(rows), 0));
  if (state.is_main_process()) print_embeddings(all.tensor());
  state.end_training();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    embed(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
