// SPDX-License-Identifier: Apache-2.0
#include "cli/models/embedding_answer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace accel::program {

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  result.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (size_t i = 0; i < 4; ++i) result += at + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return result;
}

Json embedding_json(const std::vector<float>& embedding) {
  Json::Items numbers;
  numbers.reserve(embedding.size());
  std::array<char, 32> digits{};
  for (const float number : embedding) {
    require(std::isfinite(number), Status::kInvalidArgument,
            "the embedding has a number that is not finite; see the weights of the model");
    const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    numbers.push_back(Json::number_of({digits.data(), written.ptr}));
  }
  return Json(std::move(numbers));
}

std::string embedding_answer(const std::string& model, const std::vector<std::vector<float>>& embeddings,
                             bool in_base64, int64_t prompt_tokens) {
  Json::Items data;
  for (const std::vector<float>& embedding : embeddings) {
    const std::string_view bytes(reinterpret_cast<const char*>(embedding.data()), embedding.size() * sizeof(float));
    data.push_back(Json(Json::Members{{"object", Json("embedding")},
                                      {"index", Json::number(static_cast<int64_t>(data.size()))},
                                      {"embedding", in_base64 ? Json(base64_of(bytes)) : embedding_json(embedding)}}));
  }
  return print_json(Json(Json::Members{{"object", Json("list")},
                                       {"data", Json(std::move(data))},
                                       {"model", Json(model)},
                                       {"usage", Json(Json::Members{{"prompt_tokens", Json::number(prompt_tokens)},
                                                                    {"total_tokens", Json::number(prompt_tokens)}})}}));
}

}  // namespace accel::program
