#include "tools/fp4pa/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {
namespace {

constexpr const char* kNumber = "number";  // the name of the check that every numeric option begins with

template <class T>
inline constexpr const char* kAllowed = "a number";
template <>
inline constexpr const char* kAllowed<std::int32_t> = "-2^31 to 2^31 - 1";
template <>
inline constexpr const char* kAllowed<std::uint32_t> = "0 to 2^32 - 1";
template <>
inline constexpr const char* kAllowed<std::int64_t> = "-2^63 to 2^63 - 1";
template <>
inline constexpr const char* kAllowed<std::uint64_t> = "0 to 2^64 - 1";
template <>
inline constexpr const char* kAllowed<float> = "numbers below 2^128";

template <class T>
struct NumberOf {
  using type = T;
};
template <class T>
struct NumberOf<std::optional<T>> {
  using type = T;
};

/// What is wrong with a number: CLI11 would not say what is allowed.
template <class T>
std::string error_of_number(const std::string& text) {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;
  Wide value{};
  bool fits = CLI::detail::lexical_cast(text, value);
  if constexpr (std::is_same_v<T, float>) fits = fits && (!std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max());
  return fits ? "" : text + "; allowed: " + kAllowed<T>;
}

}  // namespace

Option Option::check(const Check& check) const {
  // What a numeric option begins with says less of what is allowed. Others have no check of that name.
  try {
    option_->get_validator(kNumber)->active(false);
  } catch (const CLI::OptionNotFound&) {
  }
  option_->check(CLI::Validator([error = check.error](std::string& text) { return error(text); }, check.allowed));
  return *this;
}
Option Option::capture_default_str() const {
  option_->capture_default_str();
  return *this;
}
Option Option::required() const {
  option_->required();
  return *this;
}
Option Option::excludes(Option other) const {
  option_->excludes(other.option_);
  return *this;
}
Option Option::needs(Option other) const {
  option_->needs(other.option_);
  return *this;
}
Option Option::value_if_none(const std::string& value, const std::string& text) const {
  option_->expected(0, 1)->default_str(value)->option_text(text);
  return *this;
}
Option Option::hidden() const {
  option_->group("");
  return *this;
}
std::size_t Option::count() const { return option_->count(); }
std::string Option::text() const { return option_->as<std::string>(); }
bool Option::is_flag() const { return option_->get_expected_max() == 0; }
const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }

template <class T>
Option Command::add_option(const std::string& names, T& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(names, value, help);
  using Number = typename NumberOf<T>::type;
  if constexpr (std::is_arithmetic_v<Number>) {
    option->check(CLI::Validator([](std::string& text) { return error_of_number<Number>(text); }, "", kNumber));
  }
  return Option(*option);
}
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::int32_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint32_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, float&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<float>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;

Option Command::add_option(const std::string& names) const { return Option(*app_->add_option(names)); }
Option Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return Option(*app_->add_flag(names, value, help));
}
Option Command::add_flag(const std::string& names, const std::string& help) const { return Option(*app_->add_flag(names, help)); }
Command Command::add_subcommand(const std::string& name, const std::string& help) const {
  return Command(*app_->add_subcommand(name, help));
}
void Command::require_subcommand(bool must) const { app_->require_subcommand(must ? 1 : 0, 1); }
void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }

std::string Command::name() const { return app_->get_name(); }
std::vector<Command> Command::subcommands() const {
  std::vector<Command> all;
  for (CLI::App* const app : app_->get_subcommands({})) all.emplace_back(*app);
  return all;
}
bool Command::has_subcommand() const { return !app_->get_subcommands().empty(); }
std::vector<Option> Command::options() const {
  std::vector<Option> all;
  for (CLI::Option* const option : app_->get_options()) all.emplace_back(*option);
  return all;
}
std::optional<Option> Command::find(const std::string& name) const {
  CLI::Option* const option = app_->get_option_no_throw(name);
  return option == nullptr ? std::nullopt : std::optional(Option(*option));
}
bool Command::given(const std::string& option) const {
  const std::optional<Option> found = find(option);
  return found && found->count() != 0;
}

CommandLine::CommandLine(const std::string& help, const std::string& name) : app_(std::make_unique<CLI::App>(help, name)) {}
CommandLine::~CommandLine() = default;
void CommandLine::version(const std::string& text) { app_->set_version_flag("--version", text); }
void CommandLine::take_last() { app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast); }
void CommandLine::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11's order for a list
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    throw Failure(Exit::kUsage, e.what());
  }
}
bool CommandLine::parse_main(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return false;
  } catch (const CLI::ParseError& e) {
    return app_->exit(e) != 0;  // prints help and errors; its own codes (100 and up) all mean bad usage
  }
}

}  // namespace fp4pa::tool
