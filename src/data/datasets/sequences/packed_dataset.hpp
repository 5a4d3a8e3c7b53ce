// SPDX-License-Identifier: Apache-2.0
// Documents of different lengths in sequences of one length.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/datasets/sequences/documents.hpp"
#include "data/datasets/sequences/sequence_dataset.hpp"
#include "data/datasets/sequences/token_source.hpp"

namespace accel::data {

// An item is a list of four int64 tensors [sequence_length]:
//   input         the tokens of some documents one behind the other, then pad_token
//   target        the token that follows in the same document; -100 at a document's last token and where there is none
//   position ids  from 0 in each document, or where a sequence begins inside one; 0 where there is none
//   document ids  the number of the document; -1 where there is none. Attention is masked where two of them differ.
class PackedDataset final : public SequenceDataset {
 public:
  enum class Packing : uint8_t {
    kConcatenate,  // all documents one behind the other, cut where a sequence ends
    kBestFit,  // a document stays whole: from the longest to the shortest, each goes where the least room is left that
               // it fits in. Only one that is longer than a sequence is cut. Sequences come in the order of the
               // first document that they hold.
  };
  PackedDataset(std::shared_ptr<const TokenSource> tokens, DocumentOffsets documents, int64_t sequence_length,
                Packing packing, int64_t pad_token);
  int64_t length() const override { return static_cast<int64_t>(first_segments_.size()) - 1; }

 protected:
  void write(int64_t index, const Columns& columns) const override;

 private:
  // A part of a document, or all of it.
  struct Segment {
    int64_t document;
    int64_t begin;
    int64_t length;
  };

  std::vector<Segment> cut_documents() const;
  void concatenate();
  void fit();
  // Sequences in the order of their first segments, and segments in theirs.
  void arrange(const std::vector<Segment>& whole, const std::vector<size_t>& sequence_of, size_t sequences);
  void write_segment(const Segment& segment, const Columns& columns, int64_t place) const;

  std::shared_ptr<const TokenSource> tokens_;
  DocumentOffsets documents_;
  int64_t pad_token_;
  std::vector<Segment> segments_;
  std::vector<int64_t> first_segments_;  // of each sequence, and the end
};

}  // namespace accel::data
