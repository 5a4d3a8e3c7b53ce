// SPDX-License-Identifier: Apache-2.0
#include "track/tensorboard.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "track/event_frame.hpp"
#include "track/protobuf_writer.hpp"
#include "track/run_folder.hpp"

namespace accel::track {
namespace {

// Fields of the messages, as tensorboard/compat/proto and tensorboard/plugins/hparams number them.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9 };
enum ImageField { kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4 };
enum HistogramField { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7 };
enum MetadataField { kPluginData = 1 };
enum PluginField { kPluginName = 1, kContent = 2 };
enum TensorField { kDtype = 1, kShape = 2, kStringVal = 8 };
enum HparamsField { kExperiment = 2, kSessionStart = 3, kSessionEnd = 4 };
enum ExperimentField { kTimeCreated = 3, kHparamInfos = 4 };
enum SessionStartField { kHparams = 1, kStartTime = 5 };
enum SessionEndField { kStatus = 1, kEndTime = 2 };
enum HparamInfoField { kName = 1, kType = 4 };
enum StructValueField { kNumberValue = 2, kStringValue = 3, kBoolValue = 4 };
constexpr int64_t kDtypeString = 7;
constexpr int64_t kSessionStarted = 1;  // SessionLog.START
constexpr int64_t kStatusSuccess = 1;   // of an hparams session
constexpr int64_t kColorspaceRgba = 4;  // what browsers show does not depend on it

std::string metadata(std::string_view plugin, std::string_view content) {
  return protobuf([&](ProtobufWriter& out) {
    out.bytes(kPluginData, protobuf([&](ProtobufWriter& data) {
                data.bytes(kPluginName, plugin);
                if (!content.empty()) data.bytes(kContent, content);
              }));
  });
}

// A summary value that is a text.
std::string text_value(std::string_view name, std::string_view content) {
  return protobuf([&](ProtobufWriter& out) {
    out.bytes(kTag, text(name, "/text_summary"));
    out.bytes(kMetadata, metadata("text", ""));
    out.bytes(kTensor, protobuf([&](ProtobufWriter& tensor) {
                tensor.integer(kDtype, kDtypeString);
                tensor.bytes(kShape, protobuf([](ProtobufWriter& shape) {
                               shape.bytes(2, protobuf([](ProtobufWriter& dim) { dim.integer(1, 1); }));
                             }));
                tensor.bytes(kStringVal, content);
              }));
  });
}

std::string hparams_value(const char* tag, int field, const std::string& content) {
  return protobuf([&](ProtobufWriter& out) {
    out.bytes(kTag, tag);
    out.bytes(kMetadata, metadata("hparams", protobuf([&](ProtobufWriter& data) { data.bytes(field, content); })));
  });
}

struct Hparam {
  std::string name;
  int64_t type;       // hparams DataType
  std::string value;  // a google.protobuf.Value
};

void list_hparams(const Json& value, const std::string& name, std::vector<Hparam>& out) {
  enum DataType : int64_t { kString = 1, kBool = 2, kFloat64 = 3 };
  if (const Json::Members* const members = value.members()) {
    for (const auto& [key, member] : *members) list_hparams(member, name.empty() ? key : name + "/" + key, out);
  } else if (const bool* const flag = value.flag()) {
    out.push_back({name, kBool, protobuf([&](ProtobufWriter& to) { to.boolean(kBoolValue, *flag); })});
  } else if (const auto number = value.number()) {
    out.push_back({name, kFloat64, protobuf([&](ProtobufWriter& to) { to.float64(kNumberValue, *number); })});
  } else {
    const std::string shown = value.text() != nullptr ? *value.text() : print_json(value);
    out.push_back({name, kString, protobuf([&](ProtobufWriter& to) { to.bytes(kStringValue, shown); })});
  }
}

std::string experiment_of(const std::vector<Hparam>& hparams, double time) {
  return protobuf([&](ProtobufWriter& out) {
    out.float64(kTimeCreated, time);
    for (const Hparam& hparam : hparams)
      out.bytes(kHparamInfos, protobuf([&](ProtobufWriter& info) {
                  info.bytes(kName, hparam.name);
                  info.integer(kType, hparam.type);
                }));
  });
}

std::string session_of(const std::vector<Hparam>& hparams, double time) {
  return protobuf([&](ProtobufWriter& out) {
    for (const Hparam& hparam : hparams)
      out.bytes(kHparams, protobuf([&](ProtobufWriter& member) {
                  member.bytes(1, hparam.name);
                  member.bytes(2, hparam.value);
                }));
    out.float64(kStartTime, time);
  });
}

void append_cell(std::string& out, const Json& cell) {
  const std::string shown = cell.text() != nullptr ? *cell.text() : print_json(cell);
  for (const char byte : shown) {
    if (byte == '|') out += '\\';
    out += byte == '\n' ? ' ' : byte;
  }
  out += " | ";
}

void append_markdown_row(std::string& out, const Json& cells) {
  out += "| ";
  for (const Json& cell : *cells.items()) append_cell(out, cell);
  out += '\n';
}

std::string markdown_table(const Json& document) {
  const Json& columns = *json_member(document, "columns");
  std::string out;
  append_markdown_row(out, columns);
  out += '|';
  for (size_t i = 0; i < columns.items()->size(); i++) out += "---|";
  out += '\n';
  for (const Json& row : *json_member(document, "rows")->items()) append_markdown_row(out, row);
  return out;
}

std::string new_event_file(const Run& run, const std::string& suffix) {
  struct stat found {};
  for (int number = 0;; number++) {
    std::string path =
        text(run.folder, "/events.out.tfevents.", static_cast<int64_t>(present_time()), ".", file_name_of(run.host),
             ".", ::getpid(), ".", number, suffix.empty() ? "" : file_name_of(suffix));
    if (::lstat(path.c_str(), &found) != 0) return path;
  }
}

}  // namespace

Tensorboard::Tensorboard(Run run, const std::string& suffix)
    : run_(std::move(run)), file_(new_event_file(run_, suffix)), has_restarted_(!run_.resumed) {
  write_version();
}

void Tensorboard::write_version() {
  append_frame(file_.buffer(), protobuf([](ProtobufWriter& out) {
                 out.float64(kWallTime, present_time());
                 out.bytes(kFileVersion, "brain.Event:2");
               }));
}

void Tensorboard::write_restart(int64_t step, double time) {
  has_restarted_ = true;
  append_frame(file_.buffer(), protobuf([&](ProtobufWriter& out) {
                 out.float64(kWallTime, time);
                 out.integer(kStep, step);
                 out.bytes(kSessionLog, protobuf([](ProtobufWriter& log) { log.integer(1, kSessionStarted); }));
               }));
}

int64_t Tensorboard::step_of(const Record& record) {
  if (record.step == kNoStep) return record.kind == Record::Kind::kValues ? n_without_step_++ : 0;
  if (!has_restarted_) write_restart(record.step, record.time);
  return record.step;
}

void Tensorboard::write_summary(const Record& record) {
  event_.clear();
  ProtobufWriter event(event_);
  const int64_t step = step_of(record);
  event.float64(kWallTime, record.time);
  event.integer(kStep, step);
  event.bytes(kSummary, summary_);
  append_frame(file_.buffer(), event_);
}

void Tensorboard::write_values(const Record& record) {
  ProtobufWriter summary(summary_);
  for (size_t i = 0; i < record.size(); i++) {
    const Record::Value given = record.value(i);
    if (given.kind == Record::ValueKind::kText) {
      summary.bytes(kValue, text_value(given.name, given.text));
      continue;
    }
    value_.clear();
    ProtobufWriter value(value_);
    value.bytes(kTag, given.name);
    if (given.kind == Record::ValueKind::kHistogram) {
      const Histogram& histogram = *given.histogram;
      const std::vector<double> limits(histogram.edges.begin() + (histogram.edges.empty() ? 0 : 1),
                                       histogram.edges.end());
      value.bytes(kHistogram, protobuf([&](ProtobufWriter& out) {
                    out.float64(kMin, histogram.min);
                    out.float64(kMax, histogram.max);
                    out.float64(kNum, static_cast<double>(histogram.count));
                    out.float64(kSum, histogram.sum);
                    out.float64(kSumSquares, histogram.sum_squares);
                    out.packed(kBucketLimit, limits);
                    out.packed(kBucket, histogram.counts);
                  }));
    } else {
      value.float32(kSimpleValue, static_cast<float>(given.number));
    }
    summary.bytes(kValue, value_);
  }
}

void Tensorboard::write_configuration(const Record& record) {
  std::vector<Hparam> hparams;
  list_hparams(record.document, "", hparams);
  ProtobufWriter summary(summary_);
  summary.bytes(kValue, hparams_value("_hparams_/experiment", kExperiment, experiment_of(hparams, record.time)));
  summary.bytes(kValue, hparams_value("_hparams_/session_start_info", kSessionStart, session_of(hparams, record.time)));
  summary.bytes(kValue, text_value("config", "    " + print_json(record.document)));
  has_configuration_ = true;
}

void Tensorboard::write(const Record& record) {
  summary_.clear();
  ProtobufWriter summary(summary_);
  switch (record.kind) {
    case Record::Kind::kValues:
      write_values(record);
      break;
    case Record::Kind::kConfiguration:
      write_configuration(record);
      break;
    case Record::Kind::kImages:
    case Record::Kind::kFigure:
      for (const Picture& picture : record.pictures) {
        if (picture.format != "png") continue;
        summary.bytes(kValue, protobuf([&](ProtobufWriter& value) {
                        value.bytes(kTag, picture.name);
                        value.bytes(kImage, protobuf([&](ProtobufWriter& image) {
                                      image.integer(kHeight, picture.height);
                                      image.integer(kWidth, picture.width);
                                      image.integer(kColorspace, kColorspaceRgba);
                                      image.bytes(kEncoded, picture.bytes);
                                    }));
                      }));
      }
      break;
    case Record::Kind::kTable:
      summary.bytes(kValue, text_value(record.name, markdown_table(record.document)));
      break;
    case Record::Kind::kArtifact:
    case Record::Kind::kStepReport:
      break;
  }
  if (!summary_.empty()) write_summary(record);
}

void Tensorboard::flush(bool durable) {
  if (file_.renew_if_removed()) {
    const std::string events = std::exchange(file_.buffer(), {});
    write_version();
    file_.buffer() += events;
  }
  file_.flush(durable);
}

void Tensorboard::end(bool finished) {
  if (!has_configuration_) return;
  Record last;
  last.kind = Record::Kind::kConfiguration;
  last.time = present_time();
  summary_.clear();
  ProtobufWriter(summary_).bytes(
      kValue, hparams_value("_hparams_/session_end_info", kSessionEnd, protobuf([&](ProtobufWriter& out) {
                              if (finished) out.integer(kStatus, kStatusSuccess);
                              out.float64(kEndTime, last.time);
                            })));
  write_summary(last);
}

}  // namespace accel::track
