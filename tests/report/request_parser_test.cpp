// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP that come in parts, that are wrong, and that are too long.
#include "http/server/request_parser.hpp"

#include <gtest/gtest.h>

namespace accel::track {
namespace {

RequestLimits small_limits() {
  RequestLimits limits;
  limits.head_bytes = 1000;
  limits.headers = 5;
  limits.body_bytes = 100;
  return limits;
}

RequestParser parsed(const std::string& bytes) {
  RequestParser parser(small_limits());
  parser.add(bytes);
  return parser;
}

int status_of(const std::string& bytes) {
  const RequestParser parser = parsed(bytes);
  return parser.has_failed() ? parser.refusal().status : parser.is_complete() ? 200 : 0;
}

TEST(RequestParser, ReadsARequestHoweverItIsCut) {
  const std::string request =
      "\r\nPOST /v1/a%20b?x=%31 HTTP/1.1\r\nHost: localhost\r\nX-One:  two words \r\nContent-Length: 5\r\n\r\nhello";
  for (size_t step = 1; step <= request.size(); ++step) {
    RequestParser parser(small_limits());
    for (size_t at = 0; at < request.size(); at += step) {
      ASSERT_FALSE(parser.is_complete());
      parser.add(std::string_view(request).substr(at, step));
    }
    ASSERT_TRUE(parser.is_complete()) << step;
    const HttpRequest& read = parser.request();
    EXPECT_EQ(read.method, "POST");
    EXPECT_EQ(read.path, "/v1/a b");
    EXPECT_EQ(read.query, "x=%31");
    EXPECT_EQ(read.body, "hello");
    ASSERT_NE(read.header("x-one"), nullptr);
    EXPECT_EQ(*read.header("x-one"), "two words");
    EXPECT_EQ(read.header("x-two"), nullptr);
    EXPECT_FALSE(read.is_version_1_0);
  }
}

TEST(RequestParser, TakesOtherFormsOfRequests) {
  EXPECT_EQ(status_of("GET / HTTP/1.0\n\n"), 200);
  EXPECT_EQ(parsed("GET http://localhost:80/x HTTP/1.1\r\n\r\n").request().path, "/x");
  EXPECT_EQ(parsed("GET http://localhost HTTP/1.1\r\n\r\n").request().path, "/");
  EXPECT_EQ(parsed("GET /a#b HTTP/1.1\r\n\r\n").request().path, "/a");
  EXPECT_EQ(parsed("GET /%zz%4 HTTP/1.1\r\n\r\n").request().path, "/%zz%4");
  EXPECT_EQ(parsed("GET / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabcdef").request().body, "ab");
}

TEST(RequestParser, RefusesWhatIsNoRequest) {
  for (const char* const line :
       {"GET /", "GET", " / HTTP/1.1", "G(T / HTTP/1.1", "GET  HTTP/1.1", "GET x HTTP/1.1", "GET / x HTTP/1.1",
        "\xff\x01garbage", "GET /\x01 HTTP/1.1", "AVERYLONGMETHODWITHMANYLETTERS / HTTP/1.1", "GET / FTP/1.1"})
    EXPECT_EQ(status_of(std::string(line) + "\r\n\r\n"), 400) << line;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  for (const char* const header :
       {"no colon", "Na me: x", "Name : x", ": x", " folded", "X: a\x01", "Content-Length: -1", "Content-Length: 1x",
        "Content-Length: ", "Content-Length: 1\r\nContent-Length: 2", "Host: a\r\nHost: a"})
    EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + std::string(header) + "\r\n\r\n"), 400) << header;
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
}

TEST(RequestParser, RefusesWhatIsTooLongBeforeItHasCome) {
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n"), 0);
  EXPECT_EQ(status_of("GET /" + std::string(2000, 'x')), 414);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x')), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n\r\n"), 431);
  // What comes behind a refusal is not kept.
  RequestParser parser = parsed("GET /" + std::string(2000, 'x'));
  parser.add(std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_TRUE(parser.has_failed());
}

TEST(RequestParser, KnowsWhoWaitsToSendABody) {
  RequestParser parser = parsed("POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(parser.waits_for_continue());
  parser.add("ab");
  EXPECT_FALSE(parser.waits_for_continue());
  EXPECT_TRUE(parser.is_complete());
  EXPECT_FALSE(parsed("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n").waits_for_continue());
}

}  // namespace
}  // namespace accel::track
