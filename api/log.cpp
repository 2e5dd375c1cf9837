// Logging to stderr, one line a message, written with a single call so that lines of several threads do not mix.
#include "api/log.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fp4pa::api {
namespace {

struct NamedLevel {
  const char* name;
  LogLevel level;
};
constexpr NamedLevel kLevels[] = {
    {"off", LogLevel::kOff}, {"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}};

LogLevel level_from_environment() noexcept {
  const char* wanted = std::getenv("FP4PA_LOG");
  if (wanted == nullptr || *wanted == '\0') return LogLevel::kOff;
  for (const NamedLevel& known : kLevels) {
    if (std::strcmp(wanted, known.name) == 0) return known.level;
  }
  report_variable("FP4PA_LOG", wanted, "off, error, info, debug", "error");
  return LogLevel::kError;
}

const char* prefix(LogLevel level) noexcept {
  for (const NamedLevel& known : kLevels) {
    if (known.level == level) return known.name;
  }
  return "log";
}

}  // namespace

LogLevel log_level() noexcept {
  static const LogLevel level = level_from_environment();
  return level;
}

void log(LogLevel level, const char* format, ...) noexcept {
  if (level == LogLevel::kOff || level > log_level()) return;
  char text[768];
  std::va_list args;
  va_start(args, format);
  const int written = std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (written >= 0) std::fprintf(stderr, "fp4pa %s: %s\n", prefix(level), text);
}

void report_variable(const char* name, const char* value, const char* allowed, const char* used_instead) noexcept {
  std::fprintf(stderr, "fp4pa error: %s is \"%s\"; allowed: %s. Using %s.\n", name, value, allowed, used_instead);
}

}  // namespace fp4pa::api
