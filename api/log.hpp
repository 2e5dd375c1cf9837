// Logging to stderr, chosen by FP4PA_LOG: off (default), error, info, debug.
#pragma once

namespace fp4pa::api {

enum class LogLevel { kOff = 0, kError = 1, kInfo = 2, kDebug = 3 };

/// Level of FP4PA_LOG, read once.
[[nodiscard]] LogLevel log_level() noexcept;
/// One line on stderr, "fp4pa <level>: ...", when `level` is enabled.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...) noexcept;

/// One line on stderr, whatever FP4PA_LOG says: somebody who sets a variable wants it to do something.
void report_variable(const char* name, const char* value, const char* allowed, const char* used_instead) noexcept;

}  // namespace fp4pa::api
