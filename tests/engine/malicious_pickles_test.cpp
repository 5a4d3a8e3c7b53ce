// SPDX-License-Identifier: Apache-2.0
// A collection of attempts to make the reader of pickles execute something, read beyond its bytes, or use up memory or
// time. Each is refused with one line, and nothing happens.
#include <ATen/core/Tensor.h>

#include <chrono>

#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/torch/zip_writer.hpp"
#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace malicious_pickles_test {

using namespace checkpoint::tests;
using namespace std::string_literals;

// A file of torch.save() with this pickle, and a storage '0' of 16 bytes.
c10::IValue load(const std::string& pickle, const std::string& byte_order = "little") {
  const Folder folder;
  AtomicFile file(folder / "f.pt", quick_files());
  ZipWriter zip(file.output(), 64);
  zip.add("a/data.pkl", pickle);
  zip.add("a/byteorder", byte_order);
  zip.add("a/data/0", std::string(16, '\x01'));
  zip.finish();
  file.commit();
  return read_torch_file(std::make_shared<const MappedFile>(folder / "f.pt"));
}

struct Attempt {
  const char* what;
  std::string pickle;
  Status status;
  std::string part;
};

void expect_refused(const std::vector<Attempt>& attempts) {
  for (const Attempt& attempt : attempts) {
    SCOPED_TRACE(attempt.what);
    const auto start = std::chrono::steady_clock::now();
    expect_error(attempt.status, attempt.part, [&] { load(attempt.pickle); });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

std::string little_endian(uint64_t number, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; i++) text.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  return text;
}

std::string text_of(const std::string& text) { return "X" + little_endian(text.size(), 4) + text; }
std::string integer(int64_t number) { return "\x8a\x08" + little_endian(static_cast<uint64_t>(number), 8); }
std::string tuple(const std::string& items) { return "(" + items + "t"; }
std::string call(const std::string& name, const std::string& arguments) {
  const size_t dot = name.rfind('.');
  return "c" + name.substr(0, dot) + "\n" + name.substr(dot + 1) + "\n" + tuple(arguments) + "R";
}
std::string repeat(const std::string& text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; i++) result += text;
  return result;
}

std::string storage(const std::string& type, const std::string& key, int64_t elements) {
  return tuple(text_of("storage") + "ctorch\n" + type + "\n" + text_of(key) + text_of("cpu") + integer(elements)) + "Q";
}
// Of the storage '0' of four floats.
std::string tensor(int64_t offset, const std::string& sizes, const std::string& strides,
                   const std::string& of = storage("FloatStorage", "0", 4)) {
  return call("torch._utils._rebuild_tensor_v2",
              of + integer(offset) + sizes + strides + "\x89" + call("collections.OrderedDict", ""));
}
std::string one(int64_t number) { return tuple(integer(number)); }

TEST(MaliciousPickle, NamesOfFunctionsAreRefused) {
  const std::string command = text_of("touch /tmp/owned");
  expect_refused({
      {"os.system", call("os.system", command) + ".", Status::kUnsupported, "names os.system,"},
      {"posix.system", call("posix.system", command) + ".", Status::kUnsupported, "names posix.system,"},
      {"builtins.eval", call("builtins.eval", command) + ".", Status::kUnsupported, "names builtins.eval,"},
      {"exec of Python 2", call("__builtin__.execfile", command) + ".", Status::kUnsupported,
       "names builtins.execfile,"},
      {"getattr", call("builtins.getattr", command) + ".", Status::kUnsupported, "names builtins.getattr,"},
      {"subprocess", call("subprocess.Popen", command) + ".", Status::kUnsupported, "names subprocess.Popen,"},
      {"a pickle inside", call("torch.storage._load_from_bytes", command) + ".", Status::kUnsupported,
       "names torch.storage._load_from_bytes,"},
      {"torch.load", call("torch.load", command) + ".", Status::kUnsupported, "names torch.load,"},
      {"torch.hub.load", call("torch.hub.load", command) + ".", Status::kUnsupported, "names torch.hub.load,"},
      {"numpy.load", call("numpy.load", command) + ".", Status::kUnsupported, "names numpy.load,"},
      {"copyreg", call("copyreg._reconstructor", command) + ".", Status::kUnsupported, "names copyreg._reconstructor,"},
      {"functools.partial", call("functools.partial", command) + ".", Status::kUnsupported, "names functools.partial,"},
      {"STACK_GLOBAL", "\x8c\x02os\x8c\x06system\x93" + tuple(command) + "R.", Status::kUnsupported,
       "names os.system,"},
      {"a path of attributes", "\x8c\x05torch\x8c\x12Size.__class__.mro\x93.", Status::kUnsupported,
       "names torch.Size.__class__.mro,"},
      {"a name of two lines", "cos\nsystem\r\n.", Status::kUnsupported, "names os.system?,"},
      {"INST", "(" + command + "ios\nsystem\n.", Status::kUnsupported, "names os.system,"},
      {"OBJ", "(cos\nsystem\n" + command + "o.", Status::kUnsupported, "names os.system,"},
      {"NEWOBJ", "cos\nsystem\n" + tuple(command) + "\x81.", Status::kUnsupported, "names os.system,"},
      {"NEWOBJ_EX", "ctorch\nSize\n)}" + text_of("x") + "Ns\x92.", Status::kUnsupported, "keyword arguments"},
      {"EXT1", "\x82\x01.", Status::kUnsupported, "extension registry"},
      {"EXT2", "\x83\x01\x01.", Status::kUnsupported, "extension registry"},
      {"EXT4", "\x84\x01\x01\x01\x01.", Status::kUnsupported, "extension registry"},
      {"PERSID", "Pos.system\n.", Status::kUnsupported, "persistent id of text"},
      {"NEXT_BUFFER", "\x97.", Status::kUnsupported, "buffer outside"},
      {"a module", tuple(text_of("module") + text_of("os") + text_of("x") + text_of("y")) + "Q.", Status::kUnsupported,
       "refers to a module"},
  });
  EXPECT_FALSE(fs::exists("/tmp/owned"));
}

TEST(MaliciousPickle, KnownNamesAreCalledWithTheirArgumentsAlone) {
  const std::string dtype = call("numpy.dtype", text_of("f4") + "\x89\x88");
  expect_refused({
      {"a call of a list", "])R.", Status::kUnsupported, "calls a list"},
      {"a call of a text", text_of("os.system") + ")R.", Status::kUnsupported, "calls a string"},
      {"arguments that are a list", "ctorch\nSize\n]R.", Status::kCorrupt, "arguments of torch.Size are a list"},
      {"a storage type that is called", call("torch.FloatStorage", integer(1)) + ".", Status::kUnsupported,
       "makes an object of torch.FloatStorage"},
      {"a codec", call("_codecs.encode", text_of("x") + text_of("rot13")) + ".", Status::kUnsupported, "Latin-1"},
      {"an array of a class",
       call("numpy.core.multiarray._reconstruct", "ctorch\nSize\n" + tuple("") + text_of("b")) + ".",
       Status::kUnsupported, "not a plain array"},
      {"a scalar of objects",
       call("numpy.core.multiarray.scalar", call("numpy.dtype", text_of("O8") + "\x89\x88")) + ".",
       Status::kUnsupported, "dtype 'O8'"},
      {"attributes of a map", "}}" + text_of("__class__") + "Nsb.", Status::kUnsupported, "attributes of Python"},
      {"a state of a text", text_of("x") + "}b.", Status::kUnsupported, "has a state of Python"},
      {"an array with fewer bytes",
       call("numpy.core.multiarray._reconstruct", "cnumpy\nndarray\n" + one(0) + text_of("b")) +
           tuple(integer(1) + one(int64_t{1} << 60) + dtype + "\x89" +
                 "C\x04"
                 "abcd") +
           "b.",
       Status::kCorrupt, "has 4 bytes"},
      {"an array of negative size",
       call("numpy.core.multiarray._reconstruct", "cnumpy\nndarray\n" + one(0) + text_of("b")) +
           tuple(integer(1) + one(-1) + dtype + "\x89" +
                 "C\x04"
                 "abcd") +
           "b.",
       Status::kCorrupt, "has 4 bytes"},
      {"records", dtype + tuple(integer(3) + text_of("|") + "N" + tuple(text_of("a")) + "}") + "b.",
       Status::kUnsupported, "records"},
      {"a wrapper of another function",
       call("torch._tensor._rebuild_from_type_v2", "ctorch\nSize\nctorch\nTensor\n" + tuple("") + "}") + ".",
       Status::kCorrupt, "argument of torch._tensor._rebuild_from_type_v2"},
      {"a device", call("torch.device", text_of("/etc/passwd")) + ".", Status::kUnsupported, "not a device"},
      {"a function as a value", "ctorch._utils\n_rebuild_tensor_v2\n.", Status::kUnsupported, "itself as a value"},
      {"a storage as a value", storage("FloatStorage", "0", 4) + ".", Status::kUnsupported,
       "storage outside of a tensor"},
  });
}

TEST(MaliciousPickle, TensorsLieInTheirStorages) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  expect_refused({
      {"beyond", tensor(1, one(4), one(1)) + ".", Status::kCorrupt, "outside of its storage of 4 elements"},
      {"far beyond", tensor(kHuge, one(4), one(1)) + ".", Status::kCorrupt, "outside of its storage"},
      {"before", tensor(-1, one(1), one(1)) + ".", Status::kCorrupt, "outside of its storage"},
      {"a large stride", tensor(0, one(2), one(kHuge)) + ".", Status::kCorrupt, "outside of its storage"},
      {"a stride that wraps", tensor(0, one(5), one(kHuge)) + ".", Status::kCorrupt, "outside of its storage"},
      {"a negative stride", tensor(3, one(2), one(-1)) + ".", Status::kCorrupt, "the stride -1"},
      {"a negative size", tensor(0, one(-1), one(1)) + ".", Status::kCorrupt, "the size -1"},
      {"sizes that wrap", tensor(0, tuple(integer(kHuge) + integer(8)), tuple(integer(0) + integer(0))) + ".",
       Status::kCorrupt, "outside of its storage"},
      {"an empty one beyond", tensor(5, one(0), one(1)) + ".", Status::kCorrupt, "outside of its storage"},
      {"fewer strides", tensor(0, one(4), tuple("")) + ".", Status::kCorrupt, "1 dimensions and 0 strides"},
      {"a size that is text", tensor(0, tuple(text_of("4")), one(1)) + ".", Status::kCorrupt, "expected an integer"},
      {"a list as storage", tensor(0, one(4), one(1), "]") + ".", Status::kCorrupt, "expected a storage"},
      {"a larger storage", tensor(0, one(5), one(1), storage("FloatStorage", "0", 5)) + ".", Status::kCorrupt,
       "has 16 bytes; expected 20"},
      {"a smaller storage", tensor(0, one(1), one(1), storage("FloatStorage", "0", 3)) + ".", Status::kCorrupt,
       "has 16 bytes; expected 12"},
      {"a storage of negative size", tensor(0, one(1), one(1), storage("FloatStorage", "0", -4)) + ".",
       Status::kCorrupt, "has -4 elements"},
      {"a storage whose size wraps", tensor(0, one(1), one(1), storage("FloatStorage", "0", kHuge + 4)) + ".",
       Status::kCorrupt, "elements"},
      {"another dtype",
       "]" + tensor(0, one(1), one(1)) + "a" + tensor(0, one(1), one(1), storage("IntStorage", "0", 4)) + "a.",
       Status::kCorrupt, "two sizes or types"},
      {"a path as key", tensor(0, one(1), one(1), storage("FloatStorage", "../../etc/passwd", 4)) + ".",
       Status::kCorrupt, "'../../etc/passwd' is missing"},
      {"an unknown storage", tensor(0, one(1), one(1), storage("EvilStorage", "0", 4)) + ".", Status::kUnsupported,
       "names torch.EvilStorage,"},
      {"too few arguments", call("torch._utils._rebuild_tensor_v2", storage("FloatStorage", "0", 4)) + ".",
       Status::kCorrupt, "expected at least 2"},
      {"a dtype that is text",
       call("torch._utils._rebuild_tensor_v3",
            storage("ByteStorage", "0", 16) + integer(0) + one(1) + one(1) + "\x89N" + text_of("f")) +
           ".",
       Status::kCorrupt, "the dtype of a tensor"},
      {"a real tensor that is conjugate",
       call("torch._utils._rebuild_tensor_v2",
            storage("FloatStorage", "0", 4) + integer(0) + one(1) + one(1) + "\x89N}" + text_of("conj") + "\x88s") +
           ".",
       Status::kCorrupt, "conjugate"},
  });
}

TEST(MaliciousPickle, SizesAreCheckedBeforeMemoryIsTaken) {
  const std::string huge = little_endian(~uint64_t{0}, 8);
  expect_refused({
      {"BINUNICODE",
       "X\xff\xff\xff\xff"
       "a.",
       Status::kCorrupt, "4294967295 bytes are expected"},
      {"BINUNICODE8", "\x8d" + huge + "a.", Status::kCorrupt, "cut short"},
      {"BINBYTES8", "\x8e" + huge + "a.", Status::kCorrupt, "cut short"},
      {"BYTEARRAY8", "\x96" + little_endian(uint64_t{1} << 40, 8) + "a.", Status::kCorrupt, "cut short"},
      {"BINSTRING",
       "T\xff\xff\xff\xff"
       "a.",
       Status::kCorrupt, "cut short"},
      {"LONG4",
       "\x8b\xff\xff\xff\x7f"
       "a.",
       Status::kCorrupt, "cut short"},
      {"LONG1",
       "\x8a\xff"
       "a.",
       Status::kCorrupt, "cut short"},
      {"digits without end", "L" + std::string(1000000, '9') + "L\n.", Status::kCorrupt, "1000000 digits"},
      {"an integer of 100 bytes", "\x8a\x64" + std::string(100, '\x01') + ".", Status::kUnsupported,
       "more than 64 bits"},
      {"a line without end", "S'abc", Status::kCorrupt, "a line has no end"},
      {"no STOP", "N", Status::kCorrupt, "cut short"},
      {"nothing", "", Status::kCorrupt, "cut short"},
  });
}

TEST(MaliciousPickle, RepetitionAndDepthHaveLimits) {
  // Lists that contain the one before twice: 2^60 items in 300 bytes.
  std::string doubled =
      "]q\x01"
      "0";
  for (int i = 0; i < 60; i++)
    doubled +=
        "(h\x01h\x01lq\x01"
        "0";
  // A list of 100000 items, which each call copies.
  const std::string many = "(" + repeat("N", 100000) +
                           "lq\x01"
                           "0";
  const std::string map = "}(" + repeat("NN", 100000) +
                          "uq\x01"
                          "0";
  const std::string bytes = "B" + little_endian(1 << 20, 4) + std::string(1 << 20, 'a') +
                            "q\x01"
                            "0";
  expect_refused({
      {"lists in lists", repeat("]", 1000) + repeat("a", 999) + ".", Status::kUnsupported, "more than 200 levels"},
      {"tuples in tuples", "N" + repeat("\x85", 1000000) + ".", Status::kUnsupported, "more than 200 levels"},
      {"a list in itself",
       "]q\x01h\x01"
       "a.",
       Status::kUnsupported, "more than 200 levels"},
      {"a map in itself", "}q\x01" + text_of("a") + "h\x01s.", Status::kUnsupported, "more than 200 levels"},
      {"doubled lists", doubled + "h\x01.", Status::kUnsupported, "repeats its containers"},
      {"copies of a list", many + repeat("cbuiltins\nset\nh\x01\x85R0", 10000) + "N.", Status::kUnsupported,
       "repeats its objects without end"},
      {"copies of a map", map + repeat("ccollections\nCounter\nh\x01\x85R0", 10000) + "N.", Status::kUnsupported,
       "repeats its objects without end"},
      {"copies of bytes", bytes + repeat("cbuiltins\nbytearray\nh\x01\x85R0", 100000) + "N.", Status::kUnsupported,
       "repeats its objects without end"},
      {"copies of a shape", many + repeat("ctorch\nSize\nh\x01\x85R0", 10000) + "N.", Status::kUnsupported,
       "repeats its objects without end"},
  });
}

TEST(MaliciousPickle, DamagedProgramsOfTheStackAreRefused) {
  expect_refused({
      {"an unknown operation", "\xff.", Status::kCorrupt, "unknown operation 255"},
      {"a later protocol", "\x80\x06N.", Status::kUnsupported, "protocol 6"},
      {"an empty stack", ".", Status::kCorrupt, "ends with 0 objects"},
      {"two objects", "NN.", Status::kCorrupt, "ends with 2 objects"},
      {"a mark that is left", "N(.", Status::kCorrupt, "expected one"},
      {"POP of nothing", "0.", Status::kCorrupt, "operand is missing"},
      {"POP beyond a mark", "N(a.", Status::kCorrupt, "operand is missing"},
      {"TUPLE without a mark", "Nt.", Status::kCorrupt, "mark is missing"},
      {"TUPLE3 of two", "NN\x87.", Status::kCorrupt, "operand is missing"},
      {"APPEND to a text", text_of("x") + "Na.", Status::kCorrupt, "expected a list"},
      {"SETITEM of a list", "]NNs.", Status::kCorrupt, "expected a map"},
      {"a key without a value", "}(Nu.", Status::kCorrupt, "key of a map has no value"},
      {"an object that was not stored", "h\x07.", Status::kCorrupt, "object 7 was not stored"},
      {"a far object", "j\xff\xff\xff\xff.", Status::kCorrupt, "object 4294967295 was not stored"},
      {"a number that is none", "Ix\n.", Status::kCorrupt, "'x' is not an integer"},
      {"a wrong float", "F1.0.0\n.", Status::kCorrupt, "'1.0.0' is not a number"},
      {"a wrong escape", "V\\uZZZZ\n.", Status::kCorrupt, "wrong escape"},
      {"text without quotes", "Sabc\n.", Status::kCorrupt, "no quotes"},
      {"text that is not UTF-8", "X\x02\0\0\0\xff\xfe."s, Status::kUnsupported, "NUL or a surrogate"},
      {"text with a NUL", "X\x01\0\0\0\0."s, Status::kUnsupported, "NUL or a surrogate"},
      {"a persistent id that is a list", "]Q.", Status::kCorrupt, "expected a tuple"},
      {"a persistent id of one item", "N\x85Q.", Status::kCorrupt, "expected text"},
  });
  expect_error(Status::kUnsupported, "little-endian", [] { load("N.", "big"); });
}

TEST(MaliciousPickle, WhatIsHarmlessIsRead) {
  EXPECT_TRUE(load(tensor(0, one(4), one(1)) + ".").isTensor());
  const auto counts = load(call("collections.Counter", "}K\x05K\x02s") + ".").toGenericDict();
  EXPECT_EQ(counts.at(5).toInt(), 2);
  const auto lists = load(call("collections.defaultdict", "cbuiltins\nlist\n") + text_of("a") + "]s.").toGenericDict();
  EXPECT_TRUE(lists.at("a").isList());
  EXPECT_TRUE(load("\x80\x05\x95" + std::string(8, '\x7f') + "N.").isNone());  // FRAME is a hint
}

}  // namespace malicious_pickles_test
}  // namespace accel::checkpoint
