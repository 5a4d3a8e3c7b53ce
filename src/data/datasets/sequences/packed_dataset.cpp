// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/packed_dataset.hpp"

#include <algorithm>
#include <map>
#include <numeric>
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
        first_segments_.push_back(static_cast<int64_t>(segments_.size()));
        room = sequence_length();
      }
      const int64_t length = std::min(room, documents_[document + 1] - begin);
      segments_.push_back({document, begin, length});
      begin += length;
      room -= length;
    }
  }
  first_segments_.push_back(static_cast<int64_t>(segments_.size()));
}

std::vector<PackedDataset::Segment> PackedDataset::cut_documents() const {
  std::vector<Segment> segments;
  for (int64_t document = 0; document + 1 < static_cast<int64_t>(documents_.size()); ++document)
    for (int64_t begin = documents_[document]; begin < documents_[document + 1]; begin += sequence_length())
      segments.push_back({document, begin, std::min(sequence_length(), documents_[document + 1] - begin)});
  return segments;
}

void PackedDataset::fit() {
  const std::vector<Segment> whole = cut_documents();
  std::vector<size_t> by_length(whole.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](size_t a, size_t b) { return whole[a].length > whole[b].length; });
  std::vector<size_t> sequence_of(whole.size());
  std::map<int64_t, std::vector<size_t>> with_room;  // the sequences that have so much left
  size_t sequences = 0;
  for (const size_t segment : by_length) {
    const auto found = with_room.lower_bound(whole[segment].length);
    const int64_t room = found == with_room.end() ? sequence_length() : found->first;
    if (found == with_room.end()) {
      sequence_of[segment] = sequences++;
    } else {
      sequence_of[segment] = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) with_room.erase(found);
    }
    if (room > whole[segment].length) with_room[room - whole[segment].length].push_back(sequence_of[segment]);
  }
  arrange(whole, sequence_of, sequences);
}

void PackedDataset::arrange(const std::vector<Segment>& whole, const std::vector<size_t>& sequence_of,
                            size_t sequences) {
  constexpr auto kUnseen = static_cast<size_t>(-1);
  std::vector<size_t> place_of(sequences, kUnseen);  // by the first segment
  first_segments_.assign(sequences + 1, 0);
  size_t next = 0;
  for (const size_t sequence : sequence_of) {
    if (place_of[sequence] == kUnseen) place_of[sequence] = next++;
    ++first_segments_[place_of[sequence] + 1];
  }
  std::partial_sum(first_segments_.begin(), first_segments_.end(), first_segments_.begin());
  segments_.resize(whole.size());
  std::vector<int64_t> ends(first_segments_.begin(), first_segments_.end() - 1);
  for (size_t segment = 0; segment < whole.size(); ++segment)
    segments_[static_cast<size_t>(ends[place_of[sequence_of[segment]]]++)] = whole[segment];
}

void PackedDataset::write(int64_t index, const Columns& columns) const {
  int64_t place = 0;
  for (int64_t segment = first_segments_[index]; segment < first_segments_[index + 1]; ++segment) {
    write_segment(segments_[segment], columns, place);
    place += segments_[segment].length;
  }
  const int64_t left = sequence_length() - place;
  std::fill_n(columns[0] + place, left, pad_token_);
  std::fill_n(columns[1] + place, left, kNoTarget);
  std::fill_n(columns[2] + place, left, int64_t{0});
  std::fill_n(columns[3] + place, left, kNoDocument);
}

void PackedDataset::write_segment(const Segment& segment, const Columns& columns, int64_t place) const {
  const int64_t end = segment.begin + segment.length;
  const bool goes_on = end < documents_[segment.document + 1];  // in the next sequence
  tokens_->read(segment.begin, segment.length, columns[0] + place);
  tokens_->read(segment.begin + 1, segment.length - (goes_on ? 0 : 1), columns[1] + place);
  if (!goes_on) columns[1][place + segment.length - 1] = kNoTarget;
  std::iota(columns[2] + place, columns[2] + place + segment.length, int64_t{0});
  std::fill_n(columns[3] + place, segment.length, segment.document);
}

}  // namespace accel::data
