// The command line as the subcommands see it: names for the parts of CLI11 that they use. CLI11 itself is compiled with
// command_line.cpp alone: its classes have virtual functions and no file of their own, so that every file that includes them
// compiles all of them, which doubled its time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fp4pa::tool {

/// What a text has to be.
struct Check {
  std::function<std::string(const std::string& text)> error;  ///< what is wrong with it; "" is nothing
  std::string allowed;                                        ///< for the help; "" for not to be said there
};

/// An option of a command, of which this is a name: copies mean the same option.
class Option {
 public:
  explicit Option(CLI::Option& option) noexcept : option_(&option) {}
  Option check(const Check& check) const;
  /// The help shows what the variable holds now.
  Option capture_default_str() const;
  Option required() const;
  Option excludes(Option other) const;
  Option needs(Option other) const;
  /// It may stand without a value, which then is `value`; the help shows `text` for one.
  Option value_if_none(const std::string& value, const std::string& text) const;
  /// Not in the help.
  Option hidden() const;

  /// How often it was typed.
  [[nodiscard]] std::size_t count() const;
  /// What was typed for it, or its default.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool is_flag() const;
  /// Without their dashes.
  [[nodiscard]] const std::vector<std::string>& long_names() const;

 private:
  CLI::Option* option_;
};

/// A command with its options, of which this is a name, too.
class Command {
 public:
  explicit Command(CLI::App& app) noexcept : app_(&app) {}
  /// @tparam T  std::string, an integer of 32 or 64 bits, float, or std::optional of float or double
  template <class T>
  Option add_option(const std::string& names, T& value, const std::string& help) const;
  Option add_option(const std::string& names) const;
  Option add_flag(const std::string& names, bool& value, const std::string& help) const;
  /// One of which only what count() says is used.
  Option add_flag(const std::string& names, const std::string& help = "") const;
  [[nodiscard]] Command add_subcommand(const std::string& name, const std::string& help) const;
  /// Whether a subcommand must follow. At most one may.
  void require_subcommand(bool must) const;
  /// Under the help.
  void footer(const std::string& text) const;
  /// Runs when the command has been parsed.
  void callback(std::function<void()> run) const;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::vector<Command> subcommands() const;
  /// Whether one of them was typed.
  [[nodiscard]] bool has_subcommand() const;
  [[nodiscard]] std::vector<Option> options() const;
  /// @param name  with its dashes
  [[nodiscard]] std::optional<Option> find(const std::string& name) const;
  /// The option was typed.
  [[nodiscard]] bool given(const std::string& option) const;

 private:
  CLI::App* app_;
};

/// A command with nothing above it.
class CommandLine {
 public:
  explicit CommandLine(const std::string& help = "", const std::string& name = "");
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  [[nodiscard]] Command root() const { return Command(*app_); }
  void version(const std::string& text);
  /// Of options that are typed more than once the last is taken; for those that are added after this.
  void take_last();
  /// Parses what a shell would have split, and runs the callbacks. Failure (usage) for what the options do not allow.
  void parse(std::vector<std::string> words);
  /// As main() does it: help is printed, and what is refused said on stderr.
  /// @return whether it was refused
  [[nodiscard]] bool parse_main(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace fp4pa::tool
