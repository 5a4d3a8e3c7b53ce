// SPDX-License-Identifier: Apache-2.0
// accel embed: a line of JSON for each line of text.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "cli/models/embedding_answer.hpp"
#include "cli/models/folder_argument.hpp"
#include "cli/models/loaded_model.hpp"
#include "cli/models/model_commands.hpp"
#include "cli/models/text_embedder.hpp"

namespace accel::program {
namespace {

void print_embeddings(TextEmbedder& embedder, const std::vector<std::string>& lines, std::size_t first) {
  const Embeddings embeddings = embedder.embed(lines, first);
  for (std::size_t i = 0; i < lines.size(); ++i)
    std::puts(
        print_json(Json(Json::Members{{"text", Json(lines[i])}, {"embedding", embedding_json(embeddings.rows[i])}}))
            .c_str());
}

void embed_lines(TextEmbedder& embedder, std::istream& input, std::size_t batch_size) {
  std::vector<std::string> lines;
  std::size_t printed = 0;
  for (std::string line; std::getline(input, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
    if (lines.size() < batch_size) continue;
    print_embeddings(embedder, lines, printed);
    printed += lines.size();
    lines.clear();
  }
  if (!lines.empty()) print_embeddings(embedder, lines, printed);
}

}  // namespace

int run_embed(const std::vector<std::string>& arguments) {
  CLI::App app;
  EmbedArguments given;
  declare_embed(app, given);
  const ParsedArguments parsed = parse_anywhere(app, arguments);
  if (is_shown(parsed)) return 0;
  const std::vector<std::string> files = take_folder(app, parsed, given.model.folder, 1);
  std::ifstream file;
  if (!files.empty()) {
    file.open(files.front());
    if (!file)
      throw cpp::Error(ACCEL_ERROR_NOT_FOUND, "'" + files.front() + "' cannot be read; expected a file of text");
  }
  TextEmbedder embedder(load_encoder(given.model, "accel embed"), given.batch_size, given.truncate);
  embed_lines(embedder, files.empty() ? std::cin : file, static_cast<std::size_t>(given.batch_size));
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace accel::program
