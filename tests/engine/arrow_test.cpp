// SPDX-License-Identifier: Apache-2.0
// Record batches of Arrow, made by hand.
#include <cstring>
#include <deque>
#include <memory>

#include "data/datasets/columns/arrow_dataset.hpp"
#include "data_fixture.hpp"

namespace accel::data {
namespace arrow_test {

int live_arrays = 0;
int live_schemas = 0;

// An array of Arrow and what it owns.
struct ArrayStorage {
  std::deque<std::vector<char>> buffers;
  std::vector<const void*> pointers;
  std::vector<std::unique_ptr<ArrowArray>> children;
  std::vector<ArrowArray*> child_pointers;
};
struct SchemaStorage {
  std::string format, name;
  std::vector<std::unique_ptr<ArrowSchema>> children;
  std::vector<ArrowSchema*> child_pointers;
};

void release_array(ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; ++i)
    if (array->children[i]->release != nullptr) array->children[i]->release(array->children[i]);
  const std::unique_ptr<ArrayStorage> storage(static_cast<ArrayStorage*>(array->private_data));
  array->release = nullptr;
  --live_arrays;
}

void release_schema(ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; ++i)
    if (schema->children[i]->release != nullptr) schema->children[i]->release(schema->children[i]);
  const std::unique_ptr<SchemaStorage> storage(static_cast<SchemaStorage*>(schema->private_data));
  schema->release = nullptr;
  --live_schemas;
}

struct Made {
  ArrowSchema schema{};
  ArrowArray array{};
};

template <typename Number>
std::vector<char> bytes_of(const std::vector<Number>& numbers) {
  std::vector<char> bytes(numbers.size() * sizeof(Number) + 8);
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), numbers.size() * sizeof(Number));
  return bytes;
}

std::vector<char> bits_of(const std::vector<int>& bits) {
  std::vector<char> bytes(bits.size() / 8 + 1);
  for (size_t i = 0; i < bits.size(); ++i) bytes[i / 8] = static_cast<char>(bytes[i / 8] | bits[i] << (i % 8));
  return bytes;
}

std::unique_ptr<Made> make(const std::string& name, const std::string& format, int64_t length, int64_t offset,
                           const std::vector<int>& valid, std::vector<std::vector<char>> buffers,
                           std::vector<std::unique_ptr<Made>> children = {}) {
  auto made = std::make_unique<Made>();
  auto* const schema = std::make_unique<SchemaStorage>().release();
  schema->format = format;
  schema->name = name;
  auto* const array = std::make_unique<ArrayStorage>().release();
  array->pointers.push_back(nullptr);
  if (!valid.empty()) {
    array->buffers.push_back(bits_of(valid));
    array->pointers[0] = array->buffers.back().data();
  }
  for (auto& buffer : buffers) {
    array->buffers.push_back(std::move(buffer));
    array->pointers.push_back(array->buffers.back().data());
  }
  for (auto& child : children) {
    schema->children.push_back(std::make_unique<ArrowSchema>(child->schema));
    schema->child_pointers.push_back(schema->children.back().get());
    array->children.push_back(std::make_unique<ArrowArray>(child->array));
    array->child_pointers.push_back(array->children.back().get());
  }
  made->schema = {schema->format.c_str(),
                  schema->name.c_str(),
                  nullptr,
                  ARROW_FLAG_NULLABLE,
                  static_cast<int64_t>(children.size()),
                  schema->child_pointers.data(),
                  nullptr,
                  release_schema,
                  schema};
  made->array = {length,
                 -1,
                 offset,
                 static_cast<int64_t>(array->pointers.size()),
                 static_cast<int64_t>(children.size()),
                 array->pointers.data(),
                 array->child_pointers.data(),
                 nullptr,
                 release_array,
                 array};
  ++live_arrays;
  ++live_schemas;
  return made;
}

std::unique_ptr<Made> batch_of(int64_t length, std::vector<std::unique_ptr<Made>> columns, int64_t offset = 0) {
  return make("", "+s", length, offset, {}, {}, std::move(columns));
}

template <typename... Columns>
std::unique_ptr<Made> batch(int64_t length, Columns... columns) {
  std::vector<std::unique_ptr<Made>> list;
  (list.push_back(std::move(columns)), ...);
  return batch_of(length, std::move(list));
}

std::unique_ptr<Made> ints(std::vector<int32_t> numbers, std::vector<int> valid = {}, int64_t offset = 0) {
  const auto length = static_cast<int64_t>(numbers.size()) - offset;
  return make("n", "i", length, offset, valid, {bytes_of(numbers)});
}

std::unique_ptr<Made> lists_of_ints(std::vector<int> valid = {}) {
  std::vector<std::unique_ptr<Made>> child;
  child.push_back(ints({1, 2, 3, 4, 5, 6}));
  return make("l", "+l", 3, 0, valid, {bytes_of<int32_t>({1, 3, 3, 6})}, std::move(child));
}

std::shared_ptr<const Dataset> open(Made& made, const NullValue& null_value = std::nullopt) {
  return arrow_dataset(made.schema, made.array, null_value);
}

class Arrow : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(live_arrays, 0);
    EXPECT_EQ(live_schemas, 0);
  }
};

TEST_F(Arrow, ColumnsOfEveryKind) {
  auto made = batch(
      3, ints({7, 8, 9}), make("x", "g", 3, 0, {}, {bytes_of<double>({0.5, 1.5, 2.5})}),
      make("on", "b", 3, 0, {}, {bits_of({1, 0, 1})}),
      make("s", "u", 3, 0, {}, {bytes_of<int32_t>({0, 2, 2, 5}), bytes_of<char>({'a', 'b', 'x', 'y', 'z'})}),
      make("S", "U", 3, 0, {}, {bytes_of<int64_t>({1, 2, 3, 3}), bytes_of<char>({'a', 'b', 'x'})}), lists_of_ints());
  const auto dataset = open(*made);
  EXPECT_EQ(made->array.release, nullptr);  // it was moved
  EXPECT_EQ(live_schemas, 0);
  EXPECT_EQ(dataset->length(), 3);
  EXPECT_EQ(json_of(dataset->item(0)), R"({"n":7,"x":0.5,"on":true,"s":"ab","S":"b","l":[2,3]})");
  EXPECT_EQ(json_of(dataset->item(1)), R"({"n":8,"x":1.5,"on":false,"s":"","S":"x","l":[]})");
  Collation padded;
  padded.kind = Collation::Kind::kPad;
  EXPECT_EQ(json_of(dataset->batch({2, 0}, padded)),
            R"({"n":[9,7],"x":[2.5,0.5],"on":[true,true],"s":["xyz","ab"],"S":["","b"],"l":[[4,5,6],[2,3,0]]})");
  expect_same_alone(*dataset, {1, 2, 0}, padded);
}

TEST_F(Arrow, NumbersStayWhereTheyAre) {
  auto made = batch(3, ints({7, 8, 9}));
  const auto* const memory = static_cast<const int32_t*>(made->array.children[0]->buffers[1]);
  auto dataset = open(*made);
  at::Tensor row = dataset->item(1).toGenericDict().at("n").toTensor();
  EXPECT_EQ(row.const_data_ptr(), memory + 1);
  dataset.reset();
  EXPECT_GT(live_arrays, 0);  // the row keeps the array
  EXPECT_EQ(row.item<int32_t>(), 8);
  row.reset();
  EXPECT_EQ(live_arrays, 0);
}

TEST_F(Arrow, SlicesOfColumnsAndBatches) {
  std::vector<std::unique_ptr<Made>> columns;
  columns.push_back(ints({0, 1, 2, 3, 4, 5}, {1, 0, 1, 1, 1, 1}, 1));
  columns.push_back(make("on", "b", 5, 3, {}, {bits_of({0, 0, 0, 0, 0, 1, 0, 1})}));
  columns.push_back(make("s", "u", 5, 1, {},
                         {bytes_of<int32_t>({0, 1, 2, 3, 4, 5, 6}), bytes_of<char>({'a', 'b', 'c', 'd', 'e', 'f'})}));
  std::vector<std::unique_ptr<Made>> entries;
  entries.push_back(ints({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  columns.push_back(make("w", "+w:2", 5, 1, {}, {}, std::move(entries)));
  auto made = batch_of(3, std::move(columns), 2);
  const auto dataset = open(*made);
  EXPECT_EQ(json_of(dataset->item(0)), R"({"n":3,"on":true,"s":"d","w":[6,7]})");
  EXPECT_EQ(json_of(dataset->item(2)), R"({"n":5,"on":true,"s":"f","w":[10,11]})");
}

TEST_F(Arrow, NullsAreErrorsOrAValue) {
  {
    auto made = batch(3, ints({7, 8, 9}, {1, 0, 1}));
    expect_error(Status::kInvalidArgument, "column 'n' of the Arrow array has a null in row 1", [&] { open(*made); });
  }
  auto made = batch(
      3, ints({7, 8, 9}, {1, 0, 1}),
      make("s", "u", 3, 0, {0, 1, 1}, {bytes_of<int32_t>({0, 2, 2, 5}), bytes_of<char>({'a', 'b', 'x', 'y', 'z'})}),
      lists_of_ints({1, 1, 0}));
  const auto dataset = open(*made, -1);
  EXPECT_EQ(json_of(dataset->item(0)), R"({"n":7,"s":"","l":[2,3]})");
  EXPECT_EQ(json_of(dataset->item(1)), R"({"n":-1,"s":"","l":[]})");
  EXPECT_EQ(json_of(dataset->item(2)), R"({"n":9,"s":"xyz","l":[]})");
  auto fraction = batch(2, ints({7, 8}, {1, 0}));
  expect_error(Status::kInvalidArgument, "null_value is 0.5, which column 'n' of Int cannot hold",
               [&] { open(*fraction, 0.5); });
}

TEST_F(Arrow, RefusesWhatItCannotRead) {
  const auto refused = [](Status status, const std::string& part, std::unique_ptr<Made> made) {
    expect_error(status, part, [&] { open(*made); });
    EXPECT_EQ(made->array.release, nullptr);  // taken over in any case
  };
  refused(Status::kUnsupported, "format 'tdD'", batch(1, make("d", "tdD", 1, 0, {}, {bytes_of<int32_t>({1})})));
  refused(Status::kTypeMismatch, "format 'i'; expected a record batch", ints({1}));
  refused(Status::kAlreadyExists, "two columns 'n'", batch(1, ints({1}), ints({2})));
  refused(Status::kCorrupt, "column 'n' of the Arrow array is shorter", batch(3, ints({1, 2})));
  refused(Status::kCorrupt, "offsets that fall",
          batch(2, make("s", "u", 2, 0, {}, {bytes_of<int32_t>({0, 2, 1}), bytes_of<char>({'a', 'b'})})));
  refused(Status::kCorrupt, "fewer buffers", batch(1, make("n", "i", 1, 0, {}, {})));
  refused(Status::kInvalidArgument, "no columns", batch(1));
  auto made = batch(1, make("s", "u", 1, 0, {}, {bytes_of<int32_t>({0, 1}), bytes_of<char>({'\xff'})}));
  const auto dataset = open(*made);
  expect_error(Status::kCorrupt, "column 's' of the Arrow array is not text in row 0", [&] { dataset->item(0); });
  expect_error(Status::kInvalidArgument, "was released already", [&] { open(*made); });
}

// A stream over batches; the batch behind the last one is an error when `fails`.
struct Source {
  std::deque<std::unique_ptr<Made>> batches;
  bool fails = false;
  bool released = false;
};

ArrowArrayStream stream_of(Source& source) {
  ArrowArrayStream stream{};
  stream.private_data = &source;
  stream.get_schema = [](ArrowArrayStream*, ArrowSchema* out) {
    auto made = batch(0, ints({}));
    *out = made->schema;
    made->array.release(&made->array);
    return 0;
  };
  stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
    auto& from = *static_cast<Source*>(self->private_data);
    if (from.batches.empty()) {
      *out = {};
      return from.fails ? 5 : 0;
    }
    *out = from.batches.front()->array;
    from.batches.front()->schema.release(&from.batches.front()->schema);
    from.batches.pop_front();
    return 0;
  };
  stream.get_last_error = [](ArrowArrayStream*) -> const char* { return "the disk is gone"; };
  stream.release = [](ArrowArrayStream* self) {
    static_cast<Source*>(self->private_data)->released = true;
    self->release = nullptr;
  };
  return stream;
}

TEST_F(Arrow, StreamsOfBatches) {
  Source source;
  source.batches.push_back(batch(2, ints({1, 2})));
  source.batches.push_back(batch(0, ints({})));
  source.batches.push_back(batch(3, ints({3, 4, 5})));
  ArrowArrayStream stream = stream_of(source);
  const auto dataset = arrow_dataset(stream, std::nullopt);
  EXPECT_TRUE(source.released);
  EXPECT_EQ(stream.release, nullptr);
  EXPECT_EQ(json_of(dataset->batch({4, 0, 2})), R"({"n":[5,1,3]})");

  Source failing;
  failing.fails = true;
  failing.batches.push_back(batch(2, ints({1, 2})));
  stream = stream_of(failing);
  expect_error(Status::kIo, "cannot give the next record batch: the disk is gone",
               [&] { arrow_dataset(stream, std::nullopt); });
  EXPECT_TRUE(failing.released);
  Source empty;
  stream = stream_of(empty);
  expect_error(Status::kInvalidArgument, "no record batch", [&] { arrow_dataset(stream, std::nullopt); });
}

}  // namespace arrow_test
}  // namespace accel::data
