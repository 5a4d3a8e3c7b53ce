// SPDX-License-Identifier: Apache-2.0
#include "cli/models/model_server.hpp"

#include <ctime>
#include <filesystem>
#include <utility>

#include "cli/models/api_error.hpp"
#include "cli/models/embedding_answer.hpp"

namespace accel::program {
namespace {

std::string name_of(const ServeArguments& arguments) {
  if (!arguments.name.empty()) return arguments.name;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(arguments.model.folder);
  return folder.filename().string();
}

Json model_json(const std::string& name, std::int64_t created) {
  return Json(Json::Members{
      {"id", Json(name)}, {"object", Json("model")}, {"created", Json::number(created)}, {"owned_by", Json("accel")}});
}

bool is_json_type(const track::HttpRequest& request) {
  const std::string* const type = request.header("content-type");
  if (type == nullptr) return false;
  std::string name = type->substr(0, type->find(';'));
  while (!name.empty() && name.back() == ' ') name.pop_back();
  for (char& letter : name) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return name == "application/json";
}

// Calls `work`, and sends what it throws.
template <typename WorkOnRequest>
void answer_errors(track::HttpReply& reply, const WorkOnRequest& work) {
  try {
    work();
  } catch (const ApiError& error) {
    send_json(reply, error.status(), error.json());
  } catch (const cpp::Error& error) {
    send_json(reply, http_status(error), ApiError(http_status(error), error.what()).json());
  } catch (const std::exception& error) {
    send_json(reply, 500, ApiError(500, error.what()).json());
  }
}

}  // namespace

ModelServer::ModelServer(LoadedModel model, const ServeArguments& arguments)
    : arguments_(arguments),
      name_(name_of(arguments)),
      created_(static_cast<std::int64_t>(std::time(nullptr))),
      tokenizer_(model.tokenizer) {
  if (model.gives_embeddings) {
    embedder_ = std::make_unique<TextEmbedder>(std::move(model), arguments.max_sequences, false);
  } else {
    cpp::GenerationBatchOptions options;
    options.max_sequences = arguments.max_sequences;
    options.max_cached_tokens = arguments.max_cached_tokens;
    generator_ = std::make_unique<TextGenerator>(std::move(model), options);
  }
  thread_ = std::thread([this] { run(); });
}

ModelServer::~ModelServer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  generator_.reset();  // its listeners give back their slots
}

void ModelServer::answer(track::HttpRequest request, const std::shared_ptr<track::HttpReply>& reply) {
  answer_errors(*reply, [&] {
    if (request.method == "GET") {
      answer_get(request.path, *reply);
      return;
    }
    if (request.method != "POST")
      throw ApiError(405, request.method + " is not a method of this server; expected GET or POST");
    start(request, reply);
  });
}

void ModelServer::answer_get(const std::string& path, track::HttpReply& reply) const {
  if (path == "/health") {
    send_json(reply, is_stopping_ ? 503 : 200, is_stopping_ ? R"({"status":"stopping"})" : R"({"status":"ok"})");
  } else if (path == "/v1/models") {
    send_json(reply, 200,
              print_json(Json(
                  Json::Members{{"object", Json("list")}, {"data", Json(Json::Items{model_json(name_, created_)})}})));
  } else if (path == "/v1/models/" + name_) {
    send_json(reply, 200, print_json(model_json(name_, created_)));
  } else {
    throw ApiError(404, "there is no such route for GET; expected /v1/models or /health");
  }
}

void ModelServer::start(const track::HttpRequest& request, const std::shared_ptr<track::HttpReply>& reply) {
  const bool is_chat = request.path == "/v1/chat/completions", is_embedding = request.path == "/v1/embeddings";
  if (!is_chat && !is_embedding && request.path != "/v1/completions")
    throw ApiError(404,
                   "there is no such route for POST; expected /v1/completions, /v1/chat/completions or /v1/embeddings");
  if (is_embedding != (embedder_ != nullptr))
    throw ApiError(404, is_embedding ? "this model generates text, and has no embeddings; expected /v1/completions"
                                     : "this model has embeddings, and generates no text; expected /v1/embeddings");
  // A page of another site cannot send this type without asking first, and nobody answers it.
  if (!is_json_type(request)) throw ApiError(415, "the Content-Type is not application/json; expected it");
  if (is_stopping_) throw ApiError(503, "the server is about to stop");
  const std::shared_ptr<void> slot = take_slot();
  Work work;
  if (is_embedding)
    work = [this, body = request.body, reply, slot] { answer_errors(*reply, [&] { embed(body, *reply); }); };
  else
    work = [this, request, reply, slot, is_chat] {
      answer_errors(*reply, [&] { complete(request, reply, is_chat, slot); });
    };
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void ModelServer::complete(const track::HttpRequest& request, const std::shared_ptr<track::HttpReply>& reply,
                           bool is_chat, const std::shared_ptr<void>& slot) {
  CompletionRequest parsed = is_chat ? parse_chat_completion(request.body) : parse_completion(request.body);
  require_name(parsed.model);
  AnswerHead head;
  head.is_chat = is_chat;
  head.id = (is_chat ? "chatcmpl-" : "cmpl-") + std::to_string(created_) + "-" + std::to_string(next_answer_++);
  head.model = name_;
  head.created = static_cast<std::int64_t>(std::time(nullptr));
  head.has_scores = parsed.logprobs;
  head.include_usage = parsed.include_usage;
  std::make_shared<CompletionJob>(std::move(parsed), std::move(head), reply, slot)
      ->start(*generator_, tokenizer_, arguments_.max_tokens);
}

void ModelServer::embed(const std::string& body, track::HttpReply& reply) {
  const EmbeddingRequest request = parse_embedding(body);
  require_name(request.model);
  const Embeddings embeddings =
      request.texts.empty() ? embedder_->embed_tokens(request.tokens) : embedder_->embed(request.texts);
  const auto size = static_cast<std::int64_t>(embeddings.rows.front().size());
  if (request.dimensions && *request.dimensions != size)
    throw ApiError(400,
                   "dimensions is " + std::to_string(*request.dimensions) + "; expected " + std::to_string(size) +
                       ", which the model has",
                   "dimensions");
  send_json(reply, 200, embedding_answer(name_, embeddings.rows, request.in_base64, embeddings.tokens));
}

std::shared_ptr<void> ModelServer::take_slot() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (open_requests_ >= arguments_.max_requests)
      throw ApiError(429, "the server has " + std::to_string(open_requests_) + " requests; try again later", "",
                     "too_many_requests");
    ++open_requests_;
  }
  return {nullptr, [this](void*) {
            const std::lock_guard<std::mutex> given_back(mutex_);
            --open_requests_;
            changed_.notify_all();
          }};
}

void ModelServer::require_name(const std::string& name) const {
  if (name.empty() || name == name_) return;
  throw ApiError(404, "there is no model '" + name + "'; expected '" + name_ + "', or none", "model",
                 "model_not_found");
}

bool ModelServer::wait_for_answers(std::chrono::milliseconds longest) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, longest, [this] { return open_requests_ == 0; });
}

void ModelServer::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !work_.empty(); });
    if (is_ending_) return;
    Work work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // its slot needs the lock
    lock.lock();
  }
}

}  // namespace accel::program
