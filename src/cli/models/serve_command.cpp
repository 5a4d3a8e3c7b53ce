// SPDX-License-Identifier: Apache-2.0
// accel serve: a model behind the routes of OpenAI, until a signal.
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "cli/models/folder_argument.hpp"
#include "cli/models/model_commands.hpp"
#include "cli/models/model_server.hpp"
#include "http/server/http_server.hpp"

namespace accel::program {
namespace {

// Connections beside those of requests that are answered: they send their request, get a refusal, or ask for /health.
constexpr int kOtherConnections = 64;
constexpr std::chrono::milliseconds kPoll{20};
// Time for answers that are complete to reach their clients.
constexpr std::chrono::milliseconds kSendingTime{2000};

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  return signals;
}

void wait_for_signal() {
  const sigset_t signals = ending_signals();
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
}

bool has_signal() {
  const sigset_t signals = ending_signals();
  const timespec at_once{0, 0};
  return sigtimedwait(&signals, nullptr, &at_once) > 0;
}

// Answers that have begun are finished, unless they take too long or another signal comes.
void finish(ModelServer& model, track::HttpServer& server, std::chrono::seconds longest) {
  model.refuse_requests();
  std::fputs("accel serve: stopping; a second signal ends the answers that go on\n", stderr);
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!model.wait_for_answers(kPoll))
    if (has_signal() || std::chrono::steady_clock::now() >= end) {
      std::fputs("accel serve: answers that were not complete are cut off\n", stderr);
      return;
    }
  server.wait_for_answers(kSendingTime);
}

}  // namespace

int run_serve(const std::vector<std::string>& arguments) {
  CLI::App app;
  ServeArguments given;
  declare_serve(app, given);
  const ParsedArguments parsed = parse_anywhere(app, arguments);
  if (is_shown(parsed)) return 0;
  take_folder(app, parsed, given.model.folder, 0);
  LoadedModel loaded = load_model(given.model);
  // Threads that start from here on leave the signals to this one.
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ModelServer model(std::move(loaded), given);
  track::HttpServerOptions options;
  options.host = given.host;
  options.port = given.port;
  options.timeout_seconds = given.client_timeout;
  options.most_connections = static_cast<int>(given.max_requests) + kOtherConnections;
  options.most_body_bytes = static_cast<std::size_t>(given.max_body_bytes);
  const std::unique_ptr<track::HttpServer> server = track::make_http_server(
      options, [&model](track::HttpRequest request, const std::shared_ptr<track::HttpReply>& reply) {
        model.answer(std::move(request), reply);
      });
  const bool has_brackets = given.host.find(':') != std::string::npos;
  std::printf("http://%s%s%s:%d/v1\n", has_brackets ? "[" : "", given.host.c_str(), has_brackets ? "]" : "",
              server->port());
  std::fflush(stdout);
  wait_for_signal();
  finish(model, *server, std::chrono::seconds(given.stop_timeout));
  return 0;
}

}  // namespace accel::program
