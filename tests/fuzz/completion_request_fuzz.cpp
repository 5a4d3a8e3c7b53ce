// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a request for a completion, a chat or embeddings: a request, or an error that says what is
// wrong.
#include "cli/models/completion_request.hpp"

#include <string_view>

#include "cli/models/api_error.hpp"
#include "cli/models/embedding_request.hpp"
#include "fuzz_target.hpp"

namespace completion_request_fuzz {

using namespace accel::program;

namespace {

template <typename Parse>
void expect_request_or_error(Parse parse, std::string_view body) {
  try {
    parse(body);
  } catch (const ApiError& error) {
    check(error.status() >= 400 && error.status() < 500 && error.what()[0] != '\0');
  }
}

}  // namespace

FUZZ_TARGET(completion_request) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  expect_request_or_error(parse_completion, body);
  expect_request_or_error(parse_chat_completion, body);
  expect_request_or_error(parse_embedding, body);
  return 0;
}

}  // namespace completion_request_fuzz
