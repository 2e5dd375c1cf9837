// merge_states on a GPU's kernels: what the CPU back end gives, whose own test is tests/cache/test_merge.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu/merge.hpp"
#include "core/formats/elements.hpp"
#include "core/paging/plain_row.hpp"
#include "tests/cache/random.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

/// Elements of a type, `skipped` of them away from an address of 16 bytes.
class Elements {
 public:
  Elements(DType dtype, std::int64_t count, int skipped)
      : dtype_(dtype), memory_(static_cast<std::size_t>((count + skipped) * size_of(dtype) + 64)), skipped_(skipped) {}
  [[nodiscard]] void* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (16 - at % 16) % 16 + skipped_ * size_of(dtype_);
  }
  void set(std::int64_t i, float value) { core::store_plain_row(&value, 1, dtype_, core::element_address(data(), dtype_, i)); }
  [[nodiscard]] float at(std::int64_t i) {
    float value = 0;
    core::load_plain_row(core::element_address(data(), dtype_, i), dtype_, 1, &value);
    return value;
  }

 private:
  DType dtype_;
  std::vector<std::uint8_t> memory_;
  int skipped_;
};

}  // namespace

TEST_CASE("merge_states on a GPU: the CPU's results, whatever the shape and the address, in place too") {
  test::Random random(6);
  std::uint64_t seed = 0;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::int32_t dim : {32, 96, 128, 160, 256}) {
      for (const std::int64_t rows : {1, 37, 300}) {
        for (const int skipped : {0, 1}) {
          for (const bool in_place : {false, true}) {
            if (!test::is_run(seed++)) continue;
            CAPTURE(std::string(name_of(dtype)));
            CAPTURE(dim);
            CAPTURE(rows);
            CAPTURE(skipped);
            CAPTURE(in_place);
            const std::int64_t count = rows * dim;
            Elements a(dtype, count, skipped), b(dtype, count, skipped), want(dtype, count, skipped);
            std::vector<float> lse_a, lse_b, want_lse(static_cast<std::size_t>(rows));
            for (std::int64_t i = 0; i < count; ++i) {
              a.set(i, random.value());
              b.set(i, random.value());
            }
            for (std::int64_t row = 0; row < rows; ++row) {
              lse_a.push_back(row % 5 == 1 ? -INFINITY : static_cast<float>(40.0 * random.uniform() - 20.0));
              lse_b.push_back(row % 7 == 1 ? -INFINITY : static_cast<float>(40.0 * random.uniform() - 20.0));
              // Of an empty state the output may be anything.
              if (row % 5 == 1) a.set(row * dim + 3, std::numeric_limits<float>::quiet_NaN());
              if (row % 7 == 1) b.set(row * dim + 5, INFINITY);
            }
            REQUIRE(cpu::merge_states({a.data(), b.data(), lse_a.data(), lse_b.data(), want.data(), want_lse.data(), dtype, rows, dim},
                                      {}) == Status::kOk);
            for (const test::Target& target : test::kTargets) {
              CAPTURE(std::string(target.name));
              Elements x = a, y = b, o(dtype, count, skipped);
              std::vector<float> lse_x = lse_a, lse_y = lse_b, lse_o(static_cast<std::size_t>(rows));
              Elements& out = in_place ? y : o;
              std::vector<float>& lse = in_place ? lse_y : lse_o;
              REQUIRE(target.merge_states({x.data(), y.data(), lse_x.data(), lse_y.data(), out.data(), lse.data(), dtype, rows, dim}, {}) ==
                      Status::kOk);
              // Exponentials differ in their last bits, outputs by as much of both states' elements. A result of 16 bits may then be
              // rounded the other way.
              const double last_bits = 5e-7;
              const double ulp = dtype == DType::kF32 ? 0.0 : dtype == DType::kF16 ? 0x1p-10 : 0x1p-7;
              double worst = 0, worst_lse = 0;
              std::int64_t strange = 0;
              for (std::int64_t i = 0; i < count; ++i) {
                const double got = out.at(i), expected = want.at(i);
                double size = 1.0;
                for (const double element : {double{a.at(i)}, double{b.at(i)}}) {
                  if (std::isfinite(element)) size = std::fmax(size, std::fabs(element));
                }
                worst = std::fmax(worst, std::fabs(got - expected) / (last_bits * size + ulp * std::fabs(expected)));
                strange += std::isfinite(got) ? 0 : 1;
              }
              for (std::size_t row = 0; row < lse.size(); ++row) {
                if (lse[row] == want_lse[row]) continue;
                const double apart = std::fabs(double{lse[row]} - want_lse[row]);
                worst_lse = std::isfinite(apart) ? std::fmax(worst_lse, apart) : INFINITY;
              }
              CHECK(worst <= 1.0);
              CHECK(worst_lse <= 2e-6);  // between 16 and 21 numbers are 1.9e-6 apart
              CHECK(strange == 0);
            }
          }
        }
      }
    }
  }
}
