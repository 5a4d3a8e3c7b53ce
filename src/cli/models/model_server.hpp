// SPDX-License-Identifier: Apache-2.0
// Answers the routes of OpenAI with one model.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/models/completion_job.hpp"
#include "cli/models/embedding_request.hpp"
#include "cli/models/loaded_model.hpp"
#include "cli/models/text_embedder.hpp"
#include "cli/models/text_generator.hpp"
#include "http/server/http_message.hpp"
#include "http/server/http_reply.hpp"

namespace accel::program {

class ModelServer {
 public:
  ModelServer(LoadedModel model, const ServeArguments& arguments);
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;
  ~ModelServer();

  // The server's thread: it checks, and leaves the work to others.
  void answer(track::HttpRequest request, const std::shared_ptr<track::HttpReply>& reply);
  // New requests get status 503 from now on.
  void refuse_requests() { is_stopping_ = true; }
  // Waits until the answers that have begun are complete; false: not in this time.
  bool wait_for_answers(std::chrono::milliseconds longest);

 private:
  using Work = std::function<void()>;

  void answer_get(const std::string& path, track::HttpReply& reply) const;
  void start(const track::HttpRequest& request, const std::shared_ptr<track::HttpReply>& reply);
  void complete(const track::HttpRequest& request, const std::shared_ptr<track::HttpReply>& reply, bool is_chat,
                const std::shared_ptr<void>& slot);
  void embed(const std::string& body, track::HttpReply& reply);
  std::shared_ptr<void> take_slot();
  void require_name(const std::string& name) const;
  void run();

  const ServeArguments arguments_;
  const std::string name_;
  const std::int64_t created_;
  const cpp::Tokenizer tokenizer_;
  std::unique_ptr<TextGenerator> generator_;  // one of these two
  std::unique_ptr<TextEmbedder> embedder_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::int64_t> next_answer_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::int64_t open_requests_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace accel::program
