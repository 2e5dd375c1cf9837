// One line on stderr that says how far long work has come. Silent unless stderr is a terminal or --progress was given,
// so that logs and pipes stay clean.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace fp4pa::tool {

class Progress {
 public:
  Progress(int total, bool asked)
      : total_(total), terminal_(::isatty(STDERR_FILENO) != 0), shown_(asked || terminal_) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The next of the `total` steps begins.
  void step(const std::string& what) {
    ++done_;
    if (!shown_) return;
    clear();
    std::fprintf(stderr, "[%d/%d] %s%s", done_, total_, what.c_str(), terminal_ ? "" : "\n");
    std::fflush(stderr);
  }
  /// Nothing is left to do but to print results, which shall not share the line.
  void end() {
    clear();
    shown_ = false;
  }

 private:
  void clear() const {
    if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
  }
  int total_;
  int done_ = 0;
  bool terminal_;
  bool shown_;
};

}  // namespace fp4pa::tool
