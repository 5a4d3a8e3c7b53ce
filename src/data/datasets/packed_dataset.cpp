#include "data/datasets/packed_dataset.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace accel::data {
namespace {

constexpr int64_t kNoTarget = -100;  // what cross entropy leaves out
constexpr int64_t kNoDocument = -1;

}  // namespace

PackedDataset::PackedDataset(std::shared_ptr<const TokenSource> tokens, DocumentOffsets documents,
                             int64_t sequence_length, Packing packing, int64_t pad_token)
    : SequenceDataset(sequence_length, 4),
      tokens_(std::move(tokens)),
      documents_(std::move(documents)),
      pad_token_(pad_token) {
  require(tokens_->size() > 0, Status::kInvalidArgument, tokens_->description(), "; expected at least one to pack");
  if (packing == Packing::kConcatenate) {
    concatenate();
  } else {
    fit();
  }
}

void PackedDataset::concatenate() {
  int64_t room = 0;
  for (int64_t document = 0; document + 1 < static_cast<int64_t>(documents_.size()); ++document) {
    for (int64_t begin = documents_[document]; begin < documents_[document + 1];) {
      if (room == 0) {
        first_pieces_.push_back(static_cast<int64_t>(pieces_.size()));
        room = sequence_length();
      }
      const int64_t length = std::min(room, documents_[document + 1] - begin);
      pieces_.push_back({document, begin, length});
      begin += length;
      room -= length;
    }
  }
  first_pieces_.push_back(static_cast<int64_t>(pieces_.size()));
}

std::vector<PackedDataset::Piece> PackedDataset::cut_documents() const {
  std::vector<Piece> pieces;
  for (int64_t document = 0; document + 1 < static_cast<int64_t>(documents_.size()); ++document)
    for (int64_t begin = documents_[document]; begin < documents_[document + 1]; begin += sequence_length())
      pieces.push_back({document, begin, std::min(sequence_length(), documents_[document + 1] - begin)});
  return pieces;
}

void PackedDataset::fit() {
  const std::vector<Piece> whole = cut_documents();
  std::vector<size_t> by_length(whole.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](size_t a, size_t b) { return whole[a].length > whole[b].length; });
  std::vector<std::vector<size_t>> sequences;
  std::set<std::pair<int64_t, size_t>> rooms;  // what is left, and in which sequence
  for (const size_t piece : by_length) {
    const auto found = rooms.lower_bound({whole[piece].length, 0});
    const bool is_new = found == rooms.end();
    const std::pair<int64_t, size_t> place = is_new ? std::pair(sequence_length(), sequences.size()) : *found;
    if (is_new) {
      sequences.emplace_back();
    } else {
      rooms.erase(found);
    }
    sequences[place.second].push_back(piece);
    if (place.first > whole[piece].length) rooms.emplace(place.first - whole[piece].length, place.second);
  }
  for (auto& sequence : sequences) std::sort(sequence.begin(), sequence.end());
  std::sort(sequences.begin(), sequences.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  for (const auto& sequence : sequences) {
    first_pieces_.push_back(static_cast<int64_t>(pieces_.size()));
    for (const size_t piece : sequence) pieces_.push_back(whole[piece]);
  }
  first_pieces_.push_back(static_cast<int64_t>(pieces_.size()));
}

void PackedDataset::write(int64_t index, const Columns& columns) const {
  int64_t place = 0;
  for (int64_t piece = first_pieces_[index]; piece < first_pieces_[index + 1]; ++piece) {
    write_piece(pieces_[piece], columns, place);
    place += pieces_[piece].length;
  }
  const int64_t left = sequence_length() - place;
  std::fill_n(columns[0] + place, left, pad_token_);
  std::fill_n(columns[1] + place, left, kNoTarget);
  std::fill_n(columns[2] + place, left, int64_t{0});
  std::fill_n(columns[3] + place, left, kNoDocument);
}

void PackedDataset::write_piece(const Piece& piece, const Columns& columns, int64_t place) const {
  const int64_t end = piece.begin + piece.length;
  const bool goes_on = end < documents_[piece.document + 1];  // in the next sequence
  tokens_->read(piece.begin, piece.length, columns[0] + place);
  tokens_->read(piece.begin + 1, piece.length - (goes_on ? 0 : 1), columns[1] + place);
  if (!goes_on) columns[1][place + piece.length - 1] = kNoTarget;
  std::iota(columns[2] + place, columns[2] + place + piece.length, int64_t{0});
  std::fill_n(columns[3] + place, piece.length, piece.document);
}

}  // namespace accel::data
