// SPDX-License-Identifier: Apache-2.0
// The HTTP server with clients that behave, that are slow, that leave, and that send too much.
#include "http/server/http_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"

namespace accel::track {
namespace {

constexpr auto kLongest = std::chrono::seconds(20);

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval limit{20, 0};
    setsockopt(socket_.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  // False once the server has closed the connection.
  bool send(const std::string& bytes) const {
    return ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // The next bytes; empty at the end.
  std::string receive() const {
    std::string bytes(65536, '\0');
    const ssize_t count = recv(socket_.number(), bytes.data(), bytes.size(), 0);
    bytes.resize(count < 0 ? 0 : static_cast<size_t>(count));
    return bytes;
  }
  std::string receive_all() const {
    std::string all;
    for (std::string bytes = receive(); !bytes.empty(); bytes = receive()) all += bytes;
    return all;
  }
  std::string ask(const std::string& request) const {
    send(request);
    return receive_all();
  }
  void leave() { socket_.reset(); }

 private:
  FileDescriptor socket_;
};

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string post(const std::string& body) {
  return "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Keeps the replies, so that a test answers them when it wants to.
class HeldReplies {
 public:
  HttpRequestHandler handler() {
    return [this](const HttpRequest& /*request*/, std::shared_ptr<HttpReply> reply) {
      const std::lock_guard<std::mutex> lock(mutex_);
      replies_.push_back(std::move(reply));
    };
  }
  std::shared_ptr<HttpReply> next() {
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (std::chrono::steady_clock::now() < end) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!replies_.empty()) {
          std::shared_ptr<HttpReply> reply = std::move(replies_.back());
          replies_.pop_back();
          return reply;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no request has come";
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpReply>> replies_;
};

std::unique_ptr<HttpServer> echo_server(const HttpServerOptions& options = {}) {
  return make_http_server(options, [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->send({200, "text/plain", request.method + " " + request.path + " " + request.body});
  });
}

TEST(HttpServer, AnswersRequestsWithBodies) {
  const auto server = echo_server();
  const std::string answer = RawClient(server->port()).ask(post("hello"));
  EXPECT_EQ(answer.substr(0, 17), "HTTP/1.1 200 OK\r\n");
  EXPECT_NE(answer.find("\r\n\r\nPOST /x hello"), std::string::npos);
  EXPECT_NE(answer.find("Content-Length: 13"), std::string::npos);
  const std::string waited = RawClient(server->port())
                                 .ask(
                                     "POST /x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                                     "Content-Length: 0\r\n\r\n");
  EXPECT_NE(waited.find("200 OK"), std::string::npos);
  const RawClient waits(server->port());
  waits.send("POST /x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(waits.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_NE(waits.ask("ab").find("POST /x ab"), std::string::npos);
}

TEST(HttpServer, ServersOfPagesAnswerGetAlone) {
  const auto server = make_http_server(HttpServerOptions{}, [](const std::string& path, const std::string& query) {
    if (path == "/fails") fail(Status::kIo, "a disk is lost");
    return HttpAnswer{200, "text/plain", path + "?" + query};
  });
  EXPECT_NE(RawClient(server->port()).ask("GET /a?b HTTP/1.1\r\nHost: [::1]:5\r\n\r\n").find("\r\n\r\n/a?b"),
            std::string::npos);
  EXPECT_NE(RawClient(server->port()).ask(post("x")).find(" 405 "), std::string::npos);
  const std::string failed = RawClient(server->port()).ask("GET /fails HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(failed.find(" 500 "), std::string::npos);
  EXPECT_NE(failed.find("a disk is lost"), std::string::npos);
}

TEST(HttpServer, RefusesOtherNames) {
  const auto server = echo_server();
  EXPECT_NE(RawClient(server->port()).ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").find(" 403 "),
            std::string::npos);
  EXPECT_NE(RawClient(server->port()).ask("GET / HTTP/1.1\r\n\r\n").find(" 403 "), std::string::npos);
}

TEST(HttpServer, RefusesAGigabyteBeforeItIsRead) {
  const auto server = echo_server();
  const auto began = std::chrono::steady_clock::now();
  const std::string head = "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n";
  EXPECT_NE(RawClient(server->port()).ask(head).find(" 413 "), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  // The answer reaches a client that goes on to send, too.
  EXPECT_NE(RawClient(server->port()).ask(head + std::string(300000, 'x')).find(" 413 "), std::string::npos);
}

TEST(HttpServer, RefusesFloodsOfHeaders) {
  const auto server = echo_server();
  std::string flood = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 100000; ++i) flood += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_NE(RawClient(server->port()).ask(flood).find(" 431 "), std::string::npos);
  EXPECT_NE(RawClient(server->port()).ask("GET /" + std::string(100000, 'x')).find(" 414 "), std::string::npos);
  EXPECT_NE(RawClient(server->port()).ask("\xff\x01\r\n\r\n").find(" 400 "), std::string::npos);
  EXPECT_NE(RawClient(server->port()).ask(kGet).find(" 200 "), std::string::npos);
}

TEST(HttpServer, EndsSlowClients) {
  HttpServerOptions options;
  options.timeout_seconds = 1;
  const auto server = echo_server(options);
  const RawClient silent(server->port()), slow(server->port());
  slow.send("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_NE(slow.receive_all().find(" 408 "), std::string::npos);
  EXPECT_EQ(silent.receive_all(), "");
}

TEST(HttpServer, StreamsFromOtherThreads) {
  HeldReplies held;
  const auto server = make_http_server(HttpServerOptions{}, held.handler());
  const RawClient client(server->port()), old(server->port());
  client.send(kGet);
  const auto reply = held.next();
  reply->begin({200, "text/event-stream", "one "});
  std::string received;
  while (received.find("one ") == std::string::npos) received += client.receive();
  std::thread([&reply] {
    for (int i = 0; i < 100; ++i) reply->write(std::to_string(i) + " ");
    reply->end();
  }).join();
  received += client.receive_all();
  EXPECT_NE(received.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(received.find("3\r\n99 \r\n0\r\n\r\n"), std::string::npos);
  old.send("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n");
  const auto old_reply = held.next();
  old_reply->begin({200, "text/event-stream", "one "});
  old_reply->write("two");
  old_reply->end();
  const std::string of_old = old.receive_all();
  EXPECT_EQ(of_old.substr(of_old.find("\r\n\r\n") + 4), "one two");
}

TEST(HttpServer, TellsWhenAClientLeaves) {
  HeldReplies held;
  const auto server = make_http_server(HttpServerOptions{}, held.handler());
  for (const bool is_streaming : {false, true}) {
    RawClient client(server->port());
    client.send(kGet);
    const auto reply = held.next();
    if (is_streaming) reply->begin({200, "text/event-stream", "one "});
    std::promise<void> left;
    reply->on_disconnect([&left] { left.set_value(); });
    client.leave();
    EXPECT_EQ(left.get_future().wait_for(kLongest), std::future_status::ready);
    bool told = false;  // who asks later is told at once
    reply->on_disconnect([&told] { told = true; });
    EXPECT_TRUE(told);
    reply->write("nobody reads it");
    reply->end();
  }
  EXPECT_TRUE(server->wait_for_answers(kLongest));
}

TEST(HttpServer, TellsNobodyAfterAnAnswer) {
  HeldReplies held;
  std::atomic<bool> told{false};
  {
    const auto server = make_http_server(HttpServerOptions{}, held.handler());
    const RawClient client(server->port());
    client.send(kGet);
    const auto reply = held.next();
    reply->on_disconnect([&told] { told = true; });
    reply->send({200, "text/plain", "x"});
    reply->send({500, "text/plain", "y"});  // the first one counts
    EXPECT_NE(client.receive_all().find(" 200 "), std::string::npos);
  }
  EXPECT_FALSE(told);
}

TEST(HttpServer, GivesUpAClientThatDoesNotRead) {
  HttpServerOptions options;
  options.timeout_seconds = 1;
  HeldReplies held;
  const auto server = make_http_server(options, held.handler());
  const RawClient client(server->port());
  client.send(kGet);
  const auto reply = held.next();
  std::promise<void> left;
  reply->on_disconnect([&left] { left.set_value(); });
  reply->begin({200, "text/event-stream", std::string(size_t{16} << 20, 'x')});
  EXPECT_EQ(left.get_future().wait_for(kLongest), std::future_status::ready);
}

TEST(HttpServer, ClosesConnectionsOfForgottenReplies) {
  const auto server =
      make_http_server(HttpServerOptions{}, [](const HttpRequest&, const std::shared_ptr<HttpReply>&) {});
  EXPECT_EQ(RawClient(server->port()).ask(kGet), "");
  const auto failing = make_http_server(HttpServerOptions{}, [](const HttpRequest&, const std::shared_ptr<HttpReply>&) {
    fail(Status::kIo, "a disk is lost");
  });
  EXPECT_NE(RawClient(failing->port()).ask(kGet).find(" 500 "), std::string::npos);
}

TEST(HttpServer, WaitsForAnswers) {
  HeldReplies held;
  auto server = make_http_server(HttpServerOptions{}, held.handler());
  EXPECT_TRUE(server->wait_for_answers(std::chrono::milliseconds(0)));
  const RawClient client(server->port());
  client.send(kGet);
  const auto reply = held.next();
  EXPECT_FALSE(server->wait_for_answers(std::chrono::milliseconds(20)));
  std::thread late([&reply] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    reply->send({200, "text/plain", std::string(1000000, 'x')});
  });
  std::future<std::string> received = std::async(std::launch::async, [&client] { return client.receive_all(); });
  EXPECT_TRUE(server->wait_for_answers(kLongest));
  server.reset();
  late.join();
  EXPECT_GT(received.get().size(), 1000000U);
  reply->write("the server is gone");
}

}  // namespace
}  // namespace accel::track
