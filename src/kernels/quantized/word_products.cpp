// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/quantized/word_products.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/quantized/word_lanes.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kMostBlockColumns = 256;
constexpr int64_t kRowPadding = 32;            // words
constexpr float kSmallestRounded = 0x1p-100f;  // blocks of smaller magnitudes count as zeros

inline int64_t up(int64_t count, int64_t size) { return (count + size - 1) / size; }

// The blocks of a row: columns whose products are summed in integers. A block has the columns of one group of the
// weight or of a part of it, or is one step with several groups, each in whole 16 bytes of the vectors.
struct BlockPlan {
  int64_t steps = 0, columns = 0;  // of a block
  int64_t groups = 1;              // of a block, if there are several
  int64_t blocks_of_group = 1;
  int64_t full = 0, all = 0;  // blocks of a row; the last one may be shorter
};

template <typename Source>
bool find_plan(const WeightFormat& format, int64_t columns, BlockPlan& plan) {
  const int64_t step = Source::kStepColumns, lane = step * 16 / kWordBytes;
  const int64_t most = Source::kMostSteps * step > kMostBlockColumns ? kMostBlockColumns / step : Source::kMostSteps;
  if (format.group == 0) {
    plan.steps = most;
    plan.blocks_of_group = INT64_MAX;
  } else if (format.group % step == 0) {
    plan.steps = most;
    while (format.group % (plan.steps * step) != 0) plan.steps--;
    plan.blocks_of_group = format.group / (plan.steps * step);
  } else if (step % format.group == 0 && format.group % lane == 0) {
    plan.steps = 1;
    plan.groups = step / format.group;
  } else {
    return false;
  }
  plan.columns = plan.steps * step;
  plan.full = columns / plan.columns;
  plan.all = up(columns, plan.columns);
  return columns > 0;
}

#ifdef ACCEL_TABLE_BYTES
// Values of a code book as words: the multiplier of at most 12 bits that leaves the smallest error.
struct WordTable {
  int16_t words[16];
  float unit;  // value = word * unit
};

inline int16_t nearest_word(float value) { return static_cast<int16_t>(value < 0 ? value - 0.5f : value + 0.5f); }

inline WordTable make_table(WeightCode code) {
  float least_error = 1e30f;
  int best = 2047;
  for (int multiplier = 2047; multiplier >= 1024; multiplier--) {
    float error = 0;
    for (int i = 0; i < 16; i++) {
      const float value = code == WeightCode::kNf4 ? kNf4Values[i] : fp4_value(i);
      const float rest = value - static_cast<float>(nearest_word(value * static_cast<float>(multiplier))) /
                                     static_cast<float>(multiplier);
      error += rest * rest;
    }
    if (error < least_error) {
      least_error = error;
      best = multiplier;
    }
  }
  WordTable table;
  table.unit = 1.0f / static_cast<float>(best);
  for (int i = 0; i < 16; i++)
    table.words[i] = nearest_word((code == WeightCode::kNf4 ? kNf4Values[i] : fp4_value(i)) * static_cast<float>(best));
  return table;
}

const WordTable& table_of(WeightCode code) {
  static const WordTable nf4 = make_table(WeightCode::kNf4), fp4 = make_table(WeightCode::kFp4);
  return code == WeightCode::kNf4 ? nf4 : fp4;
}
#endif

// Calls work(source, value of the word 1) with the source of a format, or nothing where there is none.
template <typename Work>
inline void with_source(WeightCode code, const Work& work) {
  switch (code) {
    case WeightCode::kInt8:
      return work(ByteSource(), 1.0f);
    case WeightCode::kInt4:
      return work(NibbleSource(), 1.0f);
#ifdef ACCEL_TABLE_BYTES
    case WeightCode::kNf4:
    case WeightCode::kFp4:
      return work(TableSource(table_of(code).words), table_of(code).unit);
    case WeightCode::kFloat8E4M3:
      return work(FloatSource<Float8E4M3>(), 448.0f / 1792);
    case WeightCode::kFloat8E5M2:
      return work(FloatSource<Float8E5M2>(), 57344.0f / 1792);
#endif
    default:
      return;
  }
}

// A vector with each of kGroups scales in its part of the lanes.
template <int64_t kGroups>
inline void spread_scales(const float* scales, FloatSums& spread) {
  if (kGroups == 1) {
    spread = FloatSums{} + *scales;
    return;
  }
  if (kGroups == 2) {
    // A pair is broadcast as a number of 8 bytes: memory that is written in parts is read back slowly.
    typedef double Pairs __attribute__((vector_size(kWordBytes)));
    typedef int32_t Places __attribute__((vector_size(kWordBytes)));
    double pair;
    __builtin_memcpy(&pair, scales, sizeof pair);
    const Pairs pairs = Pairs{} + pair;
    FloatSums numbers;
    __builtin_memcpy(&numbers, &pairs, sizeof numbers);
    Places places{};
    for (int64_t i = 0; i < kSums; i++) places[i] = static_cast<int32_t>(i / 4 * 4 + i / (kSums / 2));
#ifdef __clang__
    for (int64_t i = 0; i < kSums; i++) spread[i] = numbers[places[i]];
#else
    spread = __builtin_shuffle(numbers, places);
#endif
    return;
  }
  for (int64_t i = 0; i < kSums; i++) spread[i] = scales[i / (kSums / kGroups)];
}

inline float total(const FloatSums& sums) {
  float lanes[kSums];
  __builtin_memcpy(lanes, &sums, sizeof sums);
  for (int64_t width = kSums / 2; width > 0; width /= 2)
    for (int64_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

// The sum of products of two rows.
inline float dot(const float* first, const float* second, int64_t count) {
  FloatSums sums{};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    FloatSums a, b;
    load_lanes_of(first + i, a);
    load_lanes_of(second + i, b);
    sums += a * b;
  }
  float sum = total(sums);
  for (; i < count; i++) sum += first[i] * second[i];
  return sum;
}

// Rows of codes that are multiplied together; a short last block is copied and padded with zeros, whose inputs are
// zero.
template <typename Source, int64_t kColumns>
struct CodeRows {
  const uint8_t* codes[kColumns];
  const float* scales[kColumns];
  const uint8_t* tail_codes[kColumns];
  const float* tail_scales[kColumns];
};

template <typename Source>
class WordColumns {
 public:
  WordColumns(const WordProduct& product, const Source& source, const BlockPlan& plan)
      : product_(product),
        inputs_(product.inputs),
        plan_(plan),
        steps_(plan.columns / Source::kStepColumns),
        row_bytes_(up(product.weight.columns * Source::kStepBytes, Source::kStepColumns)),
        source_(source) {}

  // Inputs [first, first + kRows) times kColumns rows of codes from `row`.
  template <int64_t kRows, int64_t kColumns>
  void tile(const CodeRows<Source, kColumns>& rows, int64_t first, int64_t row) const {
    constexpr int64_t kMostGroups = kWordBytes == 64 ? 4 : 2;
    if (plan_.groups == 2) return tile_of<kRows, kColumns, 2, kRows == 1>(rows, first, row);
    if (plan_.groups == kMostGroups) return tile_of<kRows, kColumns, kMostGroups, kRows == 1>(rows, first, row);
    if (kRows == 1 && steps_ == 1) return tile_of<kRows, kColumns, 1, kRows == 1>(rows, first, row);
    tile_of<kRows, kColumns, 1, false>(rows, first, row);
  }

 private:
  // A function of its own: its registers are for this loop alone.
  template <int64_t kRows, int64_t kColumns, int64_t kGroups, bool kIsOneStep>
  __attribute__((noinline)) void tile_of(const CodeRows<Source, kColumns>& rows, int64_t first, int64_t row) const {
    FloatSums sums_of_tile[kRows][kColumns] = {};
    FloatSums(*sums)[kColumns] = sums_of_tile;
    // The registers are for the sums of integers; where they are many, those of floats stay in memory.
    if (kRows * kColumns > 4) __asm__ volatile("" : "+r"(sums) : : "memory");
    const int16_t* words = inputs_.words + first * inputs_.layout.words;
    const float* scales = inputs_.scales + first * inputs_.layout.scales;
    const uint8_t* codes[kColumns];
    const float* of_rows[kColumns];
    for (int64_t j = 0; j < kColumns; j++) {
      codes[j] = rows.codes[j];
      of_rows[j] = rows.scales[j];
    }
    int64_t group = 0, left = plan_.blocks_of_group, end = plan_.full;
    for (int64_t block = 0;;) {
      for (; block < end; block++) {
        FloatSums of_codes[kColumns];
#pragma GCC unroll 4
        for (int64_t j = 0; j < kColumns; j++) spread_scales<kGroups>(of_rows[j] + group, of_codes[j]);
        add_block<kRows, kColumns>(codes, of_codes, words, scales, kIsOneStep && Source::kParts > 1 ? 1 : steps_, sums);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kColumns; j++) codes[j] += steps_ * Source::kStepBytes;
        words += plan_.columns;
        scales += kSums;
        if (kGroups > 1 || --left == 0) {
          left = plan_.blocks_of_group;
          group += kGroups;
        }
      }
      if (end == plan_.all) break;
      end = plan_.all;
      group = 0;
      for (int64_t j = 0; j < kColumns; j++) {
        codes[j] = rows.tail_codes[j];
        of_rows[j] = rows.tail_scales[j];
      }
    }
    for (int64_t i = 0; i < kRows; i++)
      for (int64_t j = 0; j < kColumns; j++) store(total(sums[i][j]), first + i, row + j);
  }

  template <int64_t kRows, int64_t kColumns>
  void add_block(const uint8_t* const (&codes)[kColumns], const FloatSums (&of_codes)[kColumns], const int16_t* words,
                 const float* scales, int64_t steps, FloatSums (*sums)[kColumns]) const {
    WordSums of_block[kRows][kColumns] = {};
    for (int64_t step = 0; step < steps; step++) {
      const int16_t* const of_step = words + step * Source::kParts * kWords;
      if constexpr (Source::kParts == 1)
        add_words<kRows, kColumns>(codes, step * Source::kStepBytes, of_step, of_block);
      else
        add_codes<kRows, kColumns>(codes, step * Source::kStepBytes, of_step, of_block);
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; i++) {
      FloatSums of_input;
      load_lanes_of(scales + i * inputs_.layout.scales, of_input);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kColumns; j++)
        sums[i][j] += __builtin_convertvector(of_block[i][j], FloatSums) * (of_input * of_codes[j]);
    }
  }

  // Rows of 4 KiB are pages, where the processor's own reading ahead ends: the next rows are read by then. Into the L2
  // cache: the few buffers that fill the L1 cache hold up a core of Zen 4.
  static void read_ahead(const uint8_t* codes) { __builtin_prefetch(codes, /*write=*/0, /*L2=*/2); }

  // A step of codes: the words of one row at a time are in registers.
  template <int64_t kRows, int64_t kColumns>
  void add_codes(const uint8_t* const (&codes)[kColumns], int64_t byte, const int16_t* words,
                 WordSums (&sums)[kRows][kColumns]) const {
    const int64_t ahead = kColumns * row_bytes_;
#pragma GCC unroll 4
    for (int64_t j = 0; j < kColumns; j++) {
      read_ahead(codes[j] + byte + ahead);
      Words parts[Source::kParts];
      source_.read(codes[j] + byte, parts);
#pragma GCC unroll 4
      for (int64_t part = 0; part < Source::kParts; part++)
#pragma GCC unroll 4
        for (int64_t i = 0; i < kRows; i++) {
          Words input;
          load_lanes_of(words + i * inputs_.layout.words + part * kWords, input);
          add_pairs(parts[part], input, sums[i][j]);
        }
    }
  }

  // A vector of words of each row.
  template <int64_t kRows, int64_t kColumns>
  void add_words(const uint8_t* const (&codes)[kColumns], int64_t byte, const int16_t* words,
                 WordSums (&sums)[kRows][kColumns]) const {
    const int64_t ahead = kColumns * row_bytes_;
    Words parts[kColumns][1];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kColumns; j++) {
      read_ahead(codes[j] + byte + ahead);
      source_.read(codes[j] + byte, parts[j]);
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; i++) {
      Words input;
      load_lanes_of(words + i * inputs_.layout.words, input);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kColumns; j++) add_pairs(parts[j][0], input, sums[i][j]);
    }
  }

  void store(float sum, int64_t input, int64_t row) const {
    const WeightFormat& format = product_.weight.format;
    const int64_t groups = inputs_.layout.sums;
    const float* const of_input = inputs_.sums + input * groups;
    if (format.has_offsets)
      sum += dot(product_.weight.offsets + row * groups, of_input, groups);
    else if (format.code == WeightCode::kInt4)
      sum -= kInt4Zero * dot(product_.weight.scales + row * groups, of_input, groups);
    const int64_t place = input * product_.weight.rows + row;
    with_number(product_.format, [&](auto number) {
      using Number = decltype(number);
      if (product_.bias != nullptr)
        sum += Number::load(static_cast<const typename Number::Stored*>(product_.bias)[row]);
      static_cast<typename Number::Stored*>(product_.outputs)[place] = Number::store(sum);
    });
  }

  const WordProduct& product_;
  const WordRows& inputs_;
  const BlockPlan plan_;
  const int64_t steps_;  // of a block, as the source has them
  const int64_t row_bytes_;
  const Source source_;
};

// The product by codes as they are for a few inputs, and by words that are read once for many.
template <typename Source>
class WordMatrix {
 public:
  WordMatrix(const WordProduct& product, const Source& source, const BlockPlan& plan)
      : product_(product),
        weight_(product.weight),
        plan_(plan),
        source_(source),
        groups_(product.inputs.layout.sums),
        bytes_(up(weight_.columns * Source::kStepBytes, Source::kStepColumns)) {}

  void multiply_codes(int64_t first, int64_t last, int64_t begin, int64_t end) const {
    if (last - first == 1) return by_codes<4>(first, last, begin, end);
    by_codes<2>(first, last, begin, end);
  }

  void multiply_words(int64_t first, int64_t last, int64_t begin, int64_t end, int16_t* scratch) const {
    int64_t row = begin;
    for (; row + kTileColumns <= end; row += kTileColumns) by_words<kTileColumns>(first, last, row, scratch);
    for (; row < end; row++) by_words<1>(first, last, row, scratch);
  }

  // Codes that take few operations to read are read again for every 4 inputs.
  static constexpr int64_t kMostByCodes = Source::kIsCheap ? INT64_MAX : 4;

 private:
  // All sums of a tile are in registers, beside the words that are multiplied and a product.
  static constexpr int64_t kTileRows = 4, kTileColumns = kWordBytes == 64 ? 4 : 2;
  static_assert(kTileColumns <= kWordScratchRows, "rows of a tile are in the scratch memory");

  // The codes and scales of a last block, padded.
  struct Tail {
    uint8_t codes[Source::kMostSteps * Source::kStepBytes];
    float scales[4];
  };

  void copy_tail(int64_t row, Tail& tail) const {
    const int64_t begin = plan_.full * plan_.steps * Source::kStepBytes;
    for (int64_t i = 0; i < plan_.steps * Source::kStepBytes; i++)
      tail.codes[i] = begin + i < bytes_ ? weight_.codes[row * bytes_ + begin + i] : 0;
    const int64_t group = plan_.groups > 1 ? plan_.full * plan_.groups : plan_.full / plan_.blocks_of_group;
    for (int64_t i = 0; i < 4; i++)
      tail.scales[i] = i < plan_.groups && group + i < groups_ ? weight_.scales[row * groups_ + group + i] : 0;
  }

  template <int64_t kColumns>
  void by_codes(int64_t first, int64_t last, int64_t begin, int64_t end) const {
    int64_t row = begin;
    for (; row + kColumns <= end; row += kColumns) codes_tile<kColumns>(first, last, row);
    for (; row < end; row++) codes_tile<1>(first, last, row);
  }

  template <int64_t kColumns>
  void codes_tile(int64_t first, int64_t last, int64_t row) const {
    CodeRows<Source, kColumns> rows;
    Tail tails[kColumns];
    for (int64_t j = 0; j < kColumns; j++) {
      rows.codes[j] = weight_.codes + (row + j) * bytes_;
      rows.scales[j] = weight_.scales + (row + j) * groups_;
      rows.tail_codes[j] = tails[j].codes;
      rows.tail_scales[j] = tails[j].scales;
      if (plan_.full != plan_.all) copy_tail(row + j, tails[j]);
    }
    all_inputs(WordColumns<Source>(product_, source_, plan_), rows, first, last, row);
  }

  template <typename Columns, typename Read, int64_t kColumns>
  void all_inputs(const Columns& columns, const CodeRows<Read, kColumns>& rows, int64_t first, int64_t last,
                  int64_t row) const {
    int64_t input = first;
    // Four rows of codes are for single inputs, unless there are registers for more.
    if constexpr (kColumns < 4 || kTileColumns == 4) {
      for (; input + kTileRows <= last; input += kTileRows)
        columns.template tile<kTileRows, kColumns>(rows, input, row);
      if (input + 3 == last) return columns.template tile<3, kColumns>(rows, input, row);
      if (input + 2 == last) return columns.template tile<2, kColumns>(rows, input, row);
    }
    for (; input < last; input++) columns.template tile<1, kColumns>(rows, input, row);
  }

  template <int64_t kColumns>
  void by_words(int64_t first, int64_t last, int64_t row, int16_t* scratch) const {
    using Read = WordSource<Source>;
    CodeRows<Read, kColumns> rows;
    Tail tails[kColumns];
    const int64_t words = product_.inputs.layout.words;
    for (int64_t j = 0; j < kColumns; j++) {
      int16_t* const to = scratch + j * words;
      if (plan_.full != plan_.all) copy_tail(row + j, tails[j]);
      for (int64_t block = 0; block < plan_.all; block++) {
        const uint8_t* const from = block == plan_.full
                                        ? tails[j].codes
                                        : weight_.codes + (row + j) * bytes_ + block * plan_.steps * Source::kStepBytes;
        for (int64_t step = 0; step < plan_.steps; step++) {
          Words parts[Source::kParts];
          source_.read(from + step * Source::kStepBytes, parts);
          __builtin_memcpy(to + block * plan_.columns + step * Source::kStepColumns, parts, sizeof parts);
        }
      }
      rows.codes[j] = reinterpret_cast<const uint8_t*>(to);
      rows.scales[j] = weight_.scales + (row + j) * groups_;
      rows.tail_codes[j] = reinterpret_cast<const uint8_t*>(to + plan_.full * plan_.columns);
      rows.tail_scales[j] = tails[j].scales;
    }
    all_inputs(WordColumns<Read>(product_, Read(), plan_), rows, first, last, row);
  }

  const WordProduct& product_;
  const QuantizedWeight& weight_;
  const BlockPlan plan_;
  const Source source_;
  const int64_t groups_, bytes_;
};

bool is_available(const WeightFormat& format, int64_t columns) {
  bool found = false;
  with_source(format.code, [&](auto source, float) {
    BlockPlan plan;
    found = find_plan<decltype(source)>(format, columns, plan);
  });
  return found;
}

WordLayout layout(const WeightFormat& format, int64_t columns) {
  WordLayout numbers;
  with_source(format.code, [&](auto source, float) {
    BlockPlan plan;
    find_plan<decltype(source)>(format, columns, plan);
    // Rows whose distance is a multiple of 4 KiB share few lines of the L1 cache.
    numbers.words = plan.all * plan.columns + kRowPadding;
    numbers.scales = plan.all * kSums;
    numbers.sums = format.group == 0 ? 1 : up(columns, format.group);
  });
  return numbers;
}

// A magnitude by its bits; those of infinity and NaN are above all numbers.
inline uint32_t largest_bits(const float* values, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = bits_as<uint32_t>(values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Rounds a run of columns with one scale, in place, and returns the scale.
inline float round_run(float* values, int64_t count, uint32_t largest_magnitude, int64_t largest) {
  const float magnitude = bits_as<float>(largest_magnitude), steps = static_cast<float>(largest);
  const bool is_finite = largest_magnitude < 0x7f800000u;
  if (!is_finite || magnitude < kSmallestRounded) {
    for (int64_t i = 0; i < count; i++) values[i] = 0;
    return is_finite ? 0.0f : bits_as<float>(0x7fc00000u);
  }
  const float inverse = steps / magnitude;
  constexpr float kNearest = 0x1.8p23f;  // added to a number, it leaves the nearest integer in the last bits
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) values[i] = (values[i] * inverse + kNearest) - kNearest;
  return magnitude / steps;
}

template <typename Source>
void arrange(const BlockPlan& plan, const float* values, int64_t columns, int16_t* words) {
  for (int64_t step = 0; step < plan.all * plan.steps; step++)
    for (int64_t part = 0; part < Source::kParts; part++)
      for (int64_t word = 0; word < kWords; word++) {
        const int64_t column = step * Source::kStepColumns + Source::column(part, word);
        words[(step * Source::kParts + part) * kWords + word] =
            column < columns ? static_cast<int16_t>(values[column]) : int16_t{0};
      }
}

void round_row(const WeightFormat& format, int64_t columns, const void* row, Format row_format, int64_t largest,
               float* exact, int16_t* words, float* scales, float* sums) {
  with_number(row_format, [&](auto number) {
    using Number = decltype(number);
    const auto* const from = static_cast<const typename Number::Stored*>(row);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < columns; i++) exact[i] = Number::load(from[i]);
  });
  with_source(format.code, [&](auto source, float unit) {
    using Source = decltype(source);
    BlockPlan plan;
    find_plan<Source>(format, columns, plan);
    const int64_t group = format.group == 0 ? columns : format.group, groups = up(columns, group);
    // A run has one scale: a group with few bits, or a part of one.
    const int64_t part = plan.groups > 1 ? group : plan.columns;
    for (int64_t g = 0; g < groups; g++) sums[g] = 0;
    const bool is_dynamic = largest < 32767;
    for (int64_t g = 0; g < groups; g++) {
      const int64_t first = g * group, end = first + group < columns ? first + group : columns;
      const uint32_t of_group = is_dynamic ? largest_bits(exact + first, end - first) : 0;
      for (int64_t begin = first; begin < end; begin += part) {
        const int64_t count = (begin + part < end ? begin + part : end) - begin;
        const uint32_t magnitude = is_dynamic ? of_group : largest_bits(exact + begin, count);
        const float scale = round_run(exact + begin, count, magnitude, largest);
        float sum = 0;
        for (int64_t i = 0; i < count; i++) sum += exact[begin + i];
        sums[g] += sum * scale;
        const int64_t lanes = kSums / plan.groups;
        float* const of_run = scales + begin / part * lanes;
        for (int64_t i = 0; i < lanes; i++) of_run[i] = scale * unit;
      }
    }
    // Lanes of groups behind the end of the row, which are multiplied with zeros.
    for (int64_t i = up(columns, part) * (kSums / plan.groups); i < plan.all * kSums; i++) scales[i] = 0;
    arrange<Source>(plan, exact, columns, words);
  });
}

void multiply(const WordProduct& product, int64_t first, int64_t last, int64_t begin, int64_t end, int16_t* scratch) {
  with_source(product.weight.format.code, [&](auto source, float) {
    using Source = decltype(source);
    BlockPlan plan;
    find_plan<Source>(product.weight.format, product.weight.columns, plan);
    const WordMatrix<Source> matrix(product, source, plan);
    if (last - first <= WordMatrix<Source>::kMostByCodes) return matrix.multiply_codes(first, last, begin, end);
    matrix.multiply_words(first, last, begin, end, scratch);
  });
}

}  // namespace

WordKernels word_kernels() { return {is_available, layout, round_row, multiply}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
