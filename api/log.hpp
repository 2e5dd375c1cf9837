// Logging to stderr, chosen by FP4PA_LOG: off (default), error, info, debug.
#pragma once

namespace fp4pa::api {

enum class LogLevel { kOff = 0, kError = 1, kInfo = 2, kDebug = 3 };

/// Level of FP4PA_LOG, read once.
[[nodiscard]] LogLevel log_level() noexcept;
/// One line on stderr, "fp4pa <level>: ...", when `level` is enabled.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...) noexcept;

}  // namespace fp4pa::api
