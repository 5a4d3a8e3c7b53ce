// Writer of pickles of protocol 2, in the names that torch.load(weights_only=True) knows.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace accel::checkpoint {

class PickleWriter {
 public:
  // Writes a tensor with the functions below.
  using TensorWriter = std::function<void(const at::Tensor& tensor, PickleWriter& pickle)>;
  explicit PickleWriter(TensorWriter write_tensor) : write_tensor_(std::move(write_tensor)) {}

  // The pickle of a value. kTypeMismatch for what torch's files cannot hold.
  std::string pickle(const c10::IValue& value);
  // Pickles the one value that `add` adds.
  std::string pickle_added(const std::function<void()>& add);

  void add_value(const c10::IValue& value, const std::string& path, int depth);
  void add_none() { add_byte('N'); }
  void add_name(std::string_view module, std::string_view name);
  void add_dtype(at::ScalarType dtype);
  void add_integer(int64_t integer);
  void add_bool(bool flag);
  void add_text(std::string_view text);
  void add_tuple(at::IntArrayRef integers);
  void begin_tuple();
  void end_tuple();
  void call();        // the name and the tuple before it
  void begin_list();  // an empty one
  void append();      // the value before it
  void begin_map();   // an empty one
  void set_member();  // to the key and the value before it
  void begin_object(std::string_view module, std::string_view class_name);
  void set_state();         // of the object, to the value before it
  void refer_to_storage();  // by the tuple before it

 private:
  void add_double(double number);
  void add_bytes(std::string_view bytes);
  void add_capsule(const c10::IValue& value, const std::string& path);
  void add_items(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth);
  void add_list(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth);
  void add_map(const c10::impl::GenericDict& map, const std::string& path, int depth);
  void add_byte(int byte) { out_.push_back(static_cast<char>(byte)); }
  void add_little_endian(uint64_t number, size_t bytes);
  bool recall(const std::string& key);
  void remember(std::string key);

  TensorWriter write_tensor_;
  std::string out_;
  std::unordered_map<std::string, uint32_t> memo_;  // "t" and a text, "n" and a name
};

}  // namespace accel::checkpoint
