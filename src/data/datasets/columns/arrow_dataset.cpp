// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/columns/arrow_dataset.hpp"

#include <cstring>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/datasets/columns/column_dataset.hpp"
#include "data/datasets/concatenated_dataset.hpp"

namespace accel::data {
namespace {

void check_record_batch(const ArrowSchema& schema) {
  require(schema.release != nullptr, Status::kInvalidArgument,
          "the Arrow schema was released already; expected one that is still owned");
  require(schema.format != nullptr && std::strcmp(schema.format, "+s") == 0, Status::kTypeMismatch,
          "the Arrow schema has format '", schema.format != nullptr ? schema.format : "",
          "'; expected a record batch, '+s'");
  require(schema.n_children > 0 && schema.children != nullptr, Status::kInvalidArgument,
          "the Arrow record batch has no columns; expected at least one");
  std::set<std::string> names;
  for (int64_t i = 0; i < schema.n_children; ++i) {
    require(schema.children[i] != nullptr, Status::kCorrupt, "column ", i, " of the Arrow schema is NULL");
    const char* const name = schema.children[i]->name != nullptr ? schema.children[i]->name : "";
    require(names.insert(name).second, Status::kAlreadyExists, "the Arrow record batch has two columns '", name,
            "'; expected names that differ");
  }
}

std::shared_ptr<const Dataset> record_batch(const ArrowSchema& schema, const ArrowArrayPtr& owner,
                                            const NullValue& null_value) {
  const ArrowArray& array = owner->get();
  require(array.release != nullptr, Status::kInvalidArgument,
          "the Arrow array was released already; expected one that is still owned");
  require(array.n_children == schema.n_children && array.children != nullptr && array.length >= 0 &&
              array.offset >= 0 && (array.n_buffers == 0 || array.buffers != nullptr),
          Status::kCorrupt, "the Arrow array has ", array.n_children, " columns and ", array.length,
          " rows; expected the ", schema.n_children, " columns of its schema");
  require(arrow_null_count(array, 0, array.length) == 0, Status::kUnsupported,
          "the Arrow record batch has rows that are null as a whole; expected nulls in its columns only");
  std::vector<std::unique_ptr<const Column>> columns;
  std::vector<std::string> names;
  for (int64_t i = 0; i < array.n_children; ++i) {
    require(array.children[i] != nullptr, Status::kCorrupt, "column ", i, " of the Arrow array is NULL");
    const ArrowSchema& column = *schema.children[i];
    columns.push_back(arrow_column(owner, column, *array.children[i], array.offset, array.length, null_value));
    names.emplace_back(column.name != nullptr ? column.name : "");
  }
  return std::make_shared<ColumnDataset>(std::move(columns), std::move(names));
}

void check_stream(ArrowArrayStream& stream, int code, const char* action) {
  if (code == 0) return;
  const char* const said = stream.get_last_error != nullptr ? stream.get_last_error(&stream) : nullptr;
  fail(Status::kIo, "the Arrow stream cannot ", action, ": ",
       said != nullptr ? std::string(said) : std::generic_category().message(code));
}

}  // namespace

std::shared_ptr<const Dataset> arrow_dataset(ArrowSchema& schema, ArrowArray& array, const NullValue& null_value) {
  const ArrowOwner<ArrowSchema> owned_schema(schema);
  const auto owned_array = std::make_shared<const ArrowOwner<ArrowArray>>(array);
  check_record_batch(owned_schema.get());
  return record_batch(owned_schema.get(), owned_array, null_value);
}

std::shared_ptr<const Dataset> arrow_dataset(ArrowArrayStream& given, const NullValue& null_value) {
  ArrowOwner<ArrowArrayStream> stream(given);
  require(stream.get().release != nullptr, Status::kInvalidArgument,
          "the Arrow stream was released already; expected one that is still owned");
  ArrowOwner<ArrowSchema> schema;
  check_stream(stream.get(), stream.get().get_schema(&stream.get(), &schema.get()), "give its schema");
  check_record_batch(schema.get());
  std::vector<std::shared_ptr<const Dataset>> batches;
  for (;;) {
    ArrowArray next{};
    check_stream(stream.get(), stream.get().get_next(&stream.get(), &next), "give the next record batch");
    if (next.release == nullptr) break;
    batches.push_back(record_batch(schema.get(), std::make_shared<const ArrowOwner<ArrowArray>>(next), null_value));
  }
  require(!batches.empty(), Status::kInvalidArgument,
          "the Arrow stream has no record batch; expected at least one, which may have no rows");
  return batches.size() == 1 ? batches[0] : std::make_shared<ConcatenatedDataset>(std::move(batches));
}

}  // namespace accel::data
