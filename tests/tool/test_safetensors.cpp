// The safetensors reader against files that are right and files that are wrong in one way each.
#include <doctest/doctest.h>

#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "tests/tool/run_tool.hpp"
#include "tests/tool/scratch.hpp"
#include "weights/safetensors.hpp"

namespace {

namespace st = fp4pa::safetensors;

/// A file's bytes from its header text, its data, and the header length it claims (the true one by default).
std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes,
                               std::uint64_t claimed = ~std::uint64_t{0}) {
  if (claimed == ~std::uint64_t{0}) claimed = header.size();
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  for (int i = 0; i < 8; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(claimed >> (8 * i));
  if (!header.empty()) std::memcpy(bytes.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes[8 + header.size() + i] = static_cast<std::byte>(i);
  return bytes;
}

std::string error_of(const std::vector<std::byte>& bytes) {
  try {
    (void)st::parse(bytes);
  } catch (const st::Error& e) {
    return e.what();
  }
  return "no error";
}

std::string error_of(const std::string& header, std::size_t data_bytes) {
  return error_of(file_of(header, data_bytes));
}

/// Everything under a folder, by its path from there.
std::set<std::string> names_in(const test::Scratch& scratch) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.file(""))) {
    names.insert(entry.path().lexically_relative(scratch.file("")));
  }
  return names;
}

/// The reader names the problem and the offending value.
#define CHECK_REFUSED(error, words, value)           \
  do {                                               \
    const std::string message = (error);             \
    INFO(message);                                   \
    CHECK(message.find(words) != std::string::npos); \
    CHECK(message.find(value) != std::string::npos); \
  } while (false)

}  // namespace

TEST_CASE("safetensors: what is written is read back") {
  const test::Scratch scratch;
  const std::vector<float> a{1.5f, -2.0f, 0.25f, 8.0f, 3.0f, 4.0f};
  const std::vector<std::uint8_t> b{1, 2, 3};
  const std::string path = scratch.file("a.safetensors");
  st::write(path,
            {{"a", "F32", {2, 3}, std::as_bytes(std::span(a))},
             {"b", "U8", {3}, std::as_bytes(std::span(b))},
             {"none", "I64", {0, 5}, {}}},
            {{"key", "value \"quoted\""}});
  const st::File file(path);
  CHECK(file.metadata().at("key") == "value \"quoted\"");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.at("a").dtype == "F32");
  CHECK(file.at("a").shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.at("a").elements() == 6);
  CHECK(std::memcmp(file.at("a").data.data(), a.data(), 24) == 0);
  CHECK(std::memcmp(file.at("b").data.data(), b.data(), 3) == 0);
  CHECK(file.at("none").elements() == 0);
  CHECK_THROWS_WITH_AS((void)file.at("c"), doctest::Contains("no tensor 'c'; it holds 'a', 'b', 'none'"), st::Error);
  // The header's padding keeps the data of a mapped file aligned.
  CHECK(reinterpret_cast<std::uintptr_t>(file.at("a").data.data()) % 8 == 0);
}

TEST_CASE("safetensors: valid corner cases are accepted") {
  CHECK(error_of("{}", 0) == "no error");
  CHECK(error_of("{}      ", 0) == "no error");
  CHECK(error_of(R"({"__metadata__":{}})", 0) == "no error");
  CHECK(error_of(R"({"scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", 8) == "no error");
  CHECK(
      error_of(
          R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})",
          4) == "no error");
}

TEST_CASE("safetensors: truncation and hostile header lengths") {
  CHECK_REFUSED(error_of(std::vector<std::byte>{}), "truncated", "0 bytes");
  CHECK_REFUSED(error_of(std::vector<std::byte>(7)), "truncated", "7 bytes");
  CHECK_REFUSED(error_of(file_of("{}", 0, 3)), "truncated", "header length 3");
  CHECK_REFUSED(error_of(file_of("{}", 0, 100'000'001)), "exceeds", "100000001");
  CHECK_REFUSED(error_of(file_of("{}", 0, 0xFFFFFFFFFFFFFFFE)), "exceeds", "18446744073709551614");
  CHECK_REFUSED(error_of(file_of("{}", 0, 0x8000000000000000)), "exceeds", "9223372036854775808");
  const std::string header = R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  CHECK(error_of(header, 16) == "no error");
  CHECK_REFUSED(error_of(header, 15), "outside the buffer of 15 bytes", "[0,16]");
}

TEST_CASE("safetensors: every truncation of a valid file is refused") {
  const std::vector<std::byte> whole = file_of(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
      11);
  REQUIRE(error_of(whole) == "no error");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    CHECK(error_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}) != "no error");
  }
}

TEST_CASE("safetensors: headers that are no JSON, or not this JSON") {
  CHECK_REFUSED(error_of("", 0), "does not start with '{'", "nothing");
  CHECK_REFUSED(error_of(" {}", 0), "does not start with '{'", "' '");
  CHECK_REFUSED(error_of("[]", 0), "does not start with '{'", "'['");
  CHECK_REFUSED(error_of("{\"a\":", 0), "not valid JSON", "parse error");
  CHECK_REFUSED(error_of("{} x", 0), "not valid JSON", "parse error");
  CHECK_REFUSED(error_of(std::string("{}\0", 3), 0), "not valid JSON", "zero byte at 2");
  CHECK_REFUSED(error_of("{\"\xff\":1}", 0), "not valid JSON", "UTF-8");
  CHECK_REFUSED(error_of(R"({"a":1})", 0), "tensor 'a' is not an object", "'1'");
  CHECK_REFUSED(error_of(R"({"a":{"b":{"c":{"d":{"e":1}}}}})", 0), "deeper than", "4");
  CHECK_REFUSED(error_of(R"({"__metadata__":[]})", 0), "__metadata__ is not an object", "[]");
  CHECK_REFUSED(error_of(R"({"__metadata__":{"x":3}})", 0), "__metadata__ entry 'x' is not a string", "'3'");
  // Deep nesting must not cost stack or time.
  CHECK_REFUSED(error_of("{\"a\":" + std::string(1'000'000, '['), 0), "deeper than", "4");
}

TEST_CASE("safetensors: duplicate names") {
  const std::string one = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  CHECK_REFUSED(error_of("{" + one + "," + one + "}", 1), "twice", "'a'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "twice",
                "'dtype'");
  CHECK_REFUSED(error_of(R"({"__metadata__":{"x":"1","x":"2"}})", 0), "twice", "'x'");
}

TEST_CASE("safetensors: entries that lack or distort a field") {
  CHECK_REFUSED(error_of(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1), "tensor 'a' has no", "'dtype'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1), "tensor 'a' has no", "'shape'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "tensor 'a' has no", "'data_offsets'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1), "dtype", "'8' is not a string");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1), "shape", "'1' is not an array");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1), "extent", "'-1'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1), "extent", "'1.5'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1), "extent",
                "18446744073709551615");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1), "extent", "\"1\"");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1), "not a pair", "[0]");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1), "data offset", "'-1'");
}

TEST_CASE("safetensors: a dtype that is not known is refused where its tensor is asked for, and not before") {
  const test::Scratch scratch;
  const std::string path = scratch.file("mixed");
  // Three elements of 4 bits in 2 bytes, complex numbers, an empty tensor and one that is known.
  const std::vector<std::byte> bytes = file_of(
      R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]},"b":{"dtype":"C64","shape":[1],"data_offsets":[2,10]},)"
      R"("c":{"dtype":"F8_E4M3FNUZ","shape":[0],"data_offsets":[10,10]},"d":{"dtype":"U8","shape":[2],"data_offsets":[10,12]}})",
      12);
  REQUIRE(error_of(bytes) == "no error");
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const st::File file(path);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors()[0].dtype == "F4");
  CHECK(file.tensors()[0].data.size() == 2);
  CHECK(file.at("d").data.size() == 2);
  CHECK_THROWS_WITH_AS((void)file.at("a"), doctest::Contains("tensor 'a': unknown dtype 'F4'; known are BOOL, U8"), st::Error);
  CHECK_THROWS_WITH_AS((void)file.at("c"), doctest::Contains("unknown dtype 'F8_E4M3FNUZ'"), st::Error);
  // Everything that does not depend on the dtype holds for it, too.
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F4","shape":[9],"data_offsets":[0,9]}})", 8), "outside the buffer of 8", "[0,9]");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[1,0]}})", 1), "backwards", "[1,0]");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[1,3]}})", 3), "hole", "starts at 0");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F4","shape":[-1],"data_offsets":[0,1]}})", 1), "extent", "'-1'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F4","shape":[4294967296,2147483648],"data_offsets":[0,1]}})", 1), "overflows", "4294967296");
}

TEST_CASE("safetensors: ranges that lie, overlap, leave holes or overflow") {
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "takes 8", "hold 4 bytes");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1), "backwards", "[1,0]");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8), "outside the buffer of 8",
                "[0,9]");
  CHECK_REFUSED(
      error_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}})", 8),
      "outside the buffer", "9223372036854775806");
  // 2^62 elements of 4 bytes are 0 modulo 2^64: what a multiplication without a check takes for an empty tensor.
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0), "overflows",
                "4611686018427387904");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
                "overflows", "4294967296");
  CHECK_REFUSED(
      error_of(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6),
      "inside another tensor", "'b' starts at byte 2");
  CHECK_REFUSED(
      error_of(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
          4),
      "inside another tensor", "'b' starts at byte 0");
  CHECK_REFUSED(
      error_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
          5),
      "hole", "starts at 2");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "hole", "starts at 0");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3), "cover 2", "3 bytes");
}

TEST_CASE("safetensors: a hostile name cannot forge a line of the message") {
  const std::string message = error_of("{\"a\\nfp4pa: all is well\":1}", 0);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(error_of("{\"" + std::string(5000, 'x') + "\":1}", 0).size() < 300);
}

TEST_CASE("safetensors: ranks, and names that a format of three fields has no use for, are bounded") {
  const auto with_rank = [](int rank) {
    std::string shape = "1";
    for (int i = 1; i < rank; ++i) shape += ",1";
    return R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})";
  };
  CHECK(error_of(with_rank(64), 1) == "no error");
  CHECK_REFUSED(error_of(with_rank(65), 1), "tensor 'a': shape has more than 64 extents", "64");
  const auto with_names = [](int count) {
    std::string names;
    for (int i = 0; i < count; ++i) names += ",\"n" + std::to_string(i) + "\":[{}]";
    return R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1])" + names + "}}";
  };
  CHECK(error_of(with_names(61), 1) == "no error");
  CHECK_REFUSED(error_of(with_names(62), 1), "tensor 'a' has an object of more than", "64");
  CHECK_REFUSED(error_of(R"({"a":{"x":{"y":1,"y":2}}})", 0), "twice", "'y'");
  CHECK_REFUSED(error_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice", "'__metadata__'");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1), "not a pair", "[0,1,2]");
  CHECK_REFUSED(error_of(R"({"a":{"dtype":"U8","shape":{"x":[1,"2",null]},"data_offsets":[0,1]}})", 1), "is not an array",
                R"('{"x":[1,"2",null]}')");
  CHECK_REFUSED(error_of(R"({"a":[{"dtype":1.5,"x":{}},true]})", 0), "tensor 'a' is not an object", R"('[{"dtype":1.5,"x":{}},true]')");
}

TEST_CASE("safetensors: every text that is UTF-8 comes back as a name and as metadata, and nothing else is written") {
  const test::Scratch scratch;
  const std::string path = scratch.file("x");
  std::string all = "\"\\/\x7f";
  for (char c = 1; c < 0x20; ++c) all += c;
  all += std::string("\0", 1) + "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";
  st::write(path, {{all, "U8", {0}, {}}}, {{all, all}});
  const st::File file(path);
  CHECK(file.tensors().at(0).name == all);
  CHECK(file.metadata().at(all) == all);
  const char* const wrong[] = {"\x80",         "\xc1\xbf",     "\xc2",             "\xc2\x7f",         "\xe0\x9f\xbf",     "\xed\xa0\x80",
                               "\xe1\x80",     "\xe1\x80\xc0", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf1\x80\x80",     "\xf1\x80\x80\x7f",
                               "\xf5\x80\x80\x80", "\xff"};
  for (const std::string text : wrong) {
    CAPTURE(text);
    for (const std::string& name : {"ab" + text, "ab" + text + "c"}) {
      CHECK_THROWS_WITH_AS(st::write(path, {{name, "U8", {0}, {}}}, {}), doctest::Contains("is not UTF-8 at byte 2"), st::Error);
      CHECK_THROWS_WITH_AS(st::write(path, {}, {{name, ""}}), doctest::Contains("is not UTF-8 at byte 2"), st::Error);
      CHECK_THROWS_WITH_AS(st::write(path, {}, {{"x", name}}), doctest::Contains("is not UTF-8 at byte 2"), st::Error);
      CHECK_REFUSED(error_of("{\"" + name + "\":1}", 0), "not valid JSON", "UTF-8");
    }
  }
  CHECK(st::File(path).metadata().at(all) == all);
}

TEST_CASE("safetensors: files that cannot be opened, are empty or are no files") {
  const test::Scratch scratch;
  CHECK_THROWS_WITH_AS(st::File(scratch.file("missing")), doctest::Contains("cannot open"), st::Error);
  CHECK_THROWS_WITH_AS(st::File("/"), doctest::Contains("not a regular file"), st::Error);
  { std::ofstream empty(scratch.file("empty")); }
  CHECK_THROWS_WITH_AS(st::File(scratch.file("empty")), doctest::Contains("truncated: 0 bytes"), st::Error);
}

TEST_CASE("safetensors: the writer refuses what it could not read back, and leaves nothing behind") {
  const test::Scratch scratch;
  const std::vector<std::uint8_t> bytes(4);
  const auto data = std::as_bytes(std::span(bytes));
  const std::string path = scratch.file("x");
  CHECK_THROWS_WITH_AS(st::write(path, {{"a", "F32", {2}, data}}, {}), doctest::Contains("4 bytes do not fit"),
                       st::Error);
  CHECK_THROWS_WITH_AS(st::write(path, {{"a", "F31", {1}, data}}, {}), doctest::Contains("F31"), st::Error);
  CHECK_THROWS_WITH_AS(st::write(path, {{"a", "U8", {4}, data}, {"a", "U8", {4}, data}}, {}), doctest::Contains("'a'"),
                       st::Error);
  CHECK_THROWS_WITH_AS(st::write(scratch.file("no/such/folder"), {{"a", "U8", {4}, data}}, {}),
                       doctest::Contains("cannot write"), st::Error);
  CHECK(names_in(scratch).empty());
}

TEST_CASE("safetensors: the writer follows links, replaces files and nothing else, and takes no other file's name") {
  const test::Scratch scratch;
  const std::vector<std::uint8_t> bytes(4);
  const std::vector<st::TensorToWrite> tensors{{"a", "U8", {4}, std::as_bytes(std::span(bytes))}};
  std::filesystem::create_directory(scratch.file("folder"));
  std::filesystem::create_symlink("folder/file", scratch.file("link"));
  std::filesystem::create_symlink(scratch.file("link"), scratch.file("chain"));
  for (const char* name : {"link", "chain", "link"}) {  // to what is not there yet, and to what is
    CAPTURE(std::string(name));
    st::write(scratch.file(name), tensors, {{"through", name}});
    CHECK(std::filesystem::is_symlink(scratch.file("link")));
    CHECK(std::filesystem::is_symlink(scratch.file("chain")));
    CHECK(st::File(scratch.file("folder/file")).metadata().at("through") == name);
  }
  std::filesystem::create_symlink("round", scratch.file("round"));
  CHECK_THROWS_WITH_AS(st::write(scratch.file("round"), tensors, {}), doctest::Contains("cannot write"), st::Error);
  CHECK(std::filesystem::is_symlink(scratch.file("round")));

  REQUIRE(::mkfifo(scratch.file("pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink("pipe", scratch.file("to_pipe"));
  for (const char* name : {"pipe", "to_pipe", "folder"}) {
    CAPTURE(std::string(name));
    CHECK_THROWS_WITH_AS(st::write(scratch.file(name), tensors, {}),
                         doctest::Contains("cannot write: not a regular file; allowed: a regular file, or a name that is free"), st::Error);
  }
  CHECK(std::filesystem::is_fifo(scratch.file("pipe")));
  CHECK(std::filesystem::is_symlink(scratch.file("to_pipe")));

  std::ofstream(scratch.file("x.partial")) << "somebody's";
  st::write(scratch.file("x"), tensors, {});
  CHECK(test::read_text(scratch.file("x.partial")) == "somebody's");
  CHECK(names_in(scratch) == std::set<std::string>{"chain", "folder", "folder/file", "link", "pipe", "round", "to_pipe", "x", "x.partial"});
}

TEST_CASE("safetensors: of writers of one name at a time, one file is left, and it is whole") {
  const test::Scratch scratch;
  const std::string path = scratch.file("x");
  std::atomic<int> failures{0}, running{2};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&, i] {
      const std::vector<std::uint8_t> bytes(i == 0 ? 3'000'000 : 1'000'000, static_cast<std::uint8_t>(i));
      for (int k = 0; k < 20; ++k) {
        try {
          st::write(path, {{"a", "U8", {static_cast<std::int64_t>(bytes.size())}, std::as_bytes(std::span(bytes))}}, {});
        } catch (const st::Error&) {
          ++failures;
        }
      }
      --running;
    });
  }
  int torn = 0;
  do {
    if (!std::filesystem::exists(path)) continue;
    try {
      const st::File file(path);
      const auto data = file.at("a").data;
      torn += data.front() != data.back() || data.size() != (data.front() == std::byte{0} ? 3'000'000u : 1'000'000u);
    } catch (const st::Error&) {
      ++torn;
    }
  } while (running > 0);
  for (std::thread& writer : writers) writer.join();
  CHECK(failures == 0);
  CHECK(torn == 0);
  CHECK(names_in(scratch) == std::set<std::string>{"x"});
}
