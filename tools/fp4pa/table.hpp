// A plain text table: first column to the left, the others to the right, widths from the contents.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace fp4pa::tool {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::FILE* out) const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      if (widths.size() < row.size()) widths.resize(row.size());
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      print_row(out, rows_[r], widths);
      if (r == 0) print_row(out, rule(widths), widths);
    }
  }

 private:
  static std::vector<std::string> rule(const std::vector<std::size_t>& widths) {
    std::vector<std::string> dashes;
    for (std::size_t width : widths) dashes.emplace_back(width, '-');
    return dashes;
  }
  static void print_row(std::FILE* out, const std::vector<std::string>& row, const std::vector<std::size_t>& widths) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const int width = static_cast<int>(widths[c]);
      std::fprintf(out, c == 0 ? "%-*s" : "  %*s", width, row[c].c_str());
    }
    std::fputc('\n', out);
  }
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fp4pa::tool
