// A JSON text as a sequence of events.
//
// No tree of values is built: the destructor of nlohmann::json takes memory of its own to take a tree apart without recursion,
// and where there is none, or where an exception for want of memory is already on its way, it ends the process. Whoever
// listens keeps what it needs and refuses the rest by an exception, and memory that runs out is an exception like any other.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace fp4pa::safetensors {

/// "not valid JSON" and why.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct JsonScalar {
  enum class Kind { kString, kUnsigned, kOther };
  Kind kind;
  std::string_view text;      ///< a string's content, or the value as JSON
  std::uint64_t number = 0;  ///< of kUnsigned
};

/// What a text consists of, in its order. Any of these may throw, which ends the reading. Views last until the call returns.
class JsonListener {
 public:
  virtual ~JsonListener() = default;
  virtual void open(char bracket) = 0;   ///< '{' or '['
  virtual void close(char bracket) = 0;  ///< '}' or ']'
  virtual void key(std::string_view name) = 0;
  virtual void scalar(const JsonScalar& value) = 0;
};

/// Throws JsonError where the text is not one JSON value.
void read_json(std::string_view text, JsonListener& listener);

}  // namespace fp4pa::safetensors
