#include "weights/json_reader.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace fp4pa::safetensors {
namespace {

using nlohmann::json;

/// The parser's own message repeats what it read last, however long that is.
constexpr std::size_t kMaxMessage = 300;

class Events final : public nlohmann::json_sax<json> {
 public:
  explicit Events(JsonListener& listener) : listener_(listener) {}

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return other(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    listener_.scalar({JsonScalar::Kind::kUnsigned, std::to_string(value), value});
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override { return other(text); }
  bool string(string_t& text) override {
    listener_.scalar({JsonScalar::Kind::kString, text});
    return true;
  }
  bool binary(binary_t&) override { return false; }  // no text has any
  bool start_object(std::size_t) override { return open('{'); }
  bool end_object() override { return close('}'); }
  bool start_array(std::size_t) override { return open('['); }
  bool end_array() override { return close(']'); }
  bool key(string_t& name) override {
    listener_.key(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& e) override {
    throw JsonError("not valid JSON: " + std::string(std::string_view(e.what()).substr(0, kMaxMessage)));
  }

 private:
  bool other(std::string_view text) {
    listener_.scalar({JsonScalar::Kind::kOther, text});
    return true;
  }
  bool open(char bracket) {
    listener_.open(bracket);
    return true;
  }
  bool close(char bracket) {
    listener_.close(bracket);
    return true;
  }

  JsonListener& listener_;
};

}  // namespace

void read_json(std::string_view text, JsonListener& listener) {
  // The lexer takes a zero byte for the end of its input and would not look at what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    throw JsonError("not valid JSON: zero byte at " + std::to_string(zero));
  }
  Events events(listener);
  json::sax_parse(text.begin(), text.end(), &events);
}

}  // namespace fp4pa::safetensors
