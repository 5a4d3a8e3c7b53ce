// SPDX-License-Identifier: Apache-2.0
#include "http/server/request_parser.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"

namespace accel::track {
namespace {

constexpr size_t kMostMethodLetters = 20;

// Letters of a token of RFC 9110.
bool is_token_letter(char letter) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         kMarks.find(letter) != std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_token_letter); }

bool is_control(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return (code < 0x20 && letter != '\t') || code == 0x7F;
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string in_lower_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return result;
}

int value_of_hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// The place behind the empty line that ends a head, or npos.
size_t end_of_head(const std::string& head, size_t from) {
  for (size_t at = head.find('\n', from); at != std::string::npos; at = head.find('\n', at + 1)) {
    if (at + 1 < head.size() && head[at + 1] == '\n') return at + 2;
    if (at + 2 < head.size() && head[at + 1] == '\r' && head[at + 2] == '\n') return at + 3;
  }
  return std::string::npos;
}

}  // namespace

std::string decoded_path(std::string_view path) {
  std::string result;
  for (size_t i = 0; i < path.size(); ++i) {
    const int high = path[i] == '%' && i + 2 < path.size() ? value_of_hex_digit(path[i + 1]) : -1;
    const int low = high >= 0 ? value_of_hex_digit(path[i + 2]) : -1;
    if (low >= 0) i += 2;
    result += low >= 0 ? static_cast<char>(high * 16 + low) : path[i];
  }
  return result;
}

void RequestParser::add(std::string_view bytes) {
  if (state_ == State::kHead) {
    // Lines that stand before a request are passed over, as RFC 9112 says.
    while (head_.empty() && !bytes.empty() && (bytes.front() == '\r' || bytes.front() == '\n')) bytes.remove_prefix(1);
    const size_t before = head_.size();
    const std::string_view taken = bytes.substr(0, limits_.head_bytes + 1 - before);
    head_.append(taken);
    const size_t end = end_of_head(head_, before < 3 ? 0 : before - 3);
    if (end == std::string::npos) {
      if (head_.size() > limits_.head_bytes)
        refuse(head_.find('\n') == std::string::npos ? 414 : 431,
               text("the request line and headers have more than ", limits_.head_bytes, " bytes"));
      return;
    }
    bytes.remove_prefix(end - before);
    head_.resize(end);
    parse_head();
  }
  if (state_ != State::kBody) return;
  request_.body.append(bytes.substr(0, body_size_ - request_.body.size()));
  if (request_.body.size() == body_size_) state_ = State::kComplete;
}

void RequestParser::parse_head() {
  std::string_view rest = head_;
  bool is_first = true;
  while (true) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) break;
    if (!(is_first ? parse_request_line(line) : parse_header(line))) return;
    is_first = false;
    rest.remove_prefix(end + 1);
  }
  if (!parse_body_size()) return;
  const std::string* const expected = request_.header("expect");
  waits_ = expected != nullptr && in_lower_case(*expected) == "100-continue";
  state_ = State::kBody;
}

bool RequestParser::parse_request_line(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || first > kMostMethodLetters ||
      !is_token(line.substr(0, first)))
    return refuse(400, "the first line is not a request; expected METHOD /path HTTP/1.1");
  const std::string_view version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return version.substr(0, 5) == "HTTP/" ? refuse(505, "the version is not known; expected HTTP/1.1 or HTTP/1.0")
                                           : refuse(400, "the first line has no version; expected HTTP/1.1");
  constexpr std::string_view kScheme = "http://";
  if (in_lower_case(target.substr(0, kScheme.size())) == kScheme) {
    const size_t path = target.find('/', kScheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  const bool is_plain = std::none_of(target.begin(), target.end(),
                                     [](char letter) { return letter == ' ' || letter == '\t' || is_control(letter); });
  if (!is_plain || target.empty() || target.front() != '/')
    return refuse(400, "the target of the request is not a path; expected one that begins with /");
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  request_.method = std::string(line.substr(0, first));
  request_.path = decoded_path(target.substr(0, question));
  request_.query = question == std::string_view::npos ? "" : std::string(target.substr(question + 1));
  request_.is_version_1_0 = version == "HTTP/1.0";
  return true;
}

bool RequestParser::parse_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return refuse(400, "a header is not NAME: VALUE");
  const std::string_view value = without_blanks(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(), is_control)) return refuse(400, "a header has control characters");
  if (request_.headers.size() == limits_.headers)
    return refuse(431, text("there are more than ", limits_.headers, " headers"));
  std::string name = in_lower_case(line.substr(0, colon));
  const std::string* const former = request_.header(name);
  if (former != nullptr && (name == "host" || (name == "content-length" && *former != value)))
    return refuse(400, text("there are two headers ", name, "; expected one"));
  request_.headers.emplace_back(std::move(name), std::string(value));
  return true;
}

bool RequestParser::parse_body_size() {
  if (request_.header("transfer-encoding") != nullptr)
    return refuse(411, "the body has a Transfer-Encoding; expected a Content-Length");
  const std::string* const given = request_.header("content-length");
  if (given == nullptr) return true;
  uint64_t size = 0;
  const auto parsed = std::from_chars(given->data(), given->data() + given->size(), size);
  const bool is_number = !given->empty() && std::all_of(given->begin(), given->end(),
                                                        [](char letter) { return letter >= '0' && letter <= '9'; });
  if (!is_number) return refuse(400, "the Content-Length is not a number");
  if (parsed.ec != std::errc() || size > limits_.body_bytes)
    return refuse(413, text("the body has ", given->substr(0, 20), " bytes; expected at most ", limits_.body_bytes));
  body_size_ = static_cast<size_t>(size);
  return true;
}

bool RequestParser::refuse(int status, std::string message) {
  state_ = State::kFailed;
  refusal_.status = status;
  refusal_.body = std::move(message) + "\n";
  return false;
}

}  // namespace accel::track
