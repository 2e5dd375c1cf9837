// The gfx950 atoms, transposing LDS reads, direct loads and conversions on an MI350 or MI355X.
//
// A program of its own, not a doctest area: without such a device it says so and exits with 77.
//   hipcc -std=c++20 -O2 --offload-arch=gfx950 -Xclang -target-feature -Xclang -packed-fp32-ops -I. -Iinclude
//   tests/conformance/device/gfx950.hip
// What no kernel of the default build uses is named, and executed with the argument --all alone: a simulator may lack it. Kernels
// use the 16x16x128 shape, with the lowest byte of either scale word. --large asks for 4.5 GiB, of whose ends one direct load reads both.
#include <type_traits>

#include "backends/gfx950/convert.hpp"
#include "backends/gfx950/copies.hpp"
#if defined(__gfx950__)
#include "backends/gfx950/exec.hpp"
#endif
#include "backends/gfx950/mma.hpp"
#include "tests/conformance/device/executor.hpp"
#include "tests/conformance/probe.hpp"

namespace fp4pa::conformance {
namespace {

template <int kBits>
struct ReadTransposed {
  static constexpr int kLanes = 64;
  __attribute__((device)) static void run(std::uint32_t (&d)[4], const void* lds) {
    std::uint32_t x[2];
    if constexpr (kBits == 4) {
      gfx950::read_transposed_4(x, lds);
    } else if constexpr (kBits == 8) {
      gfx950::read_transposed_8(x, lds);
    } else {
      gfx950::read_transposed_16(x, lds);
    }
    d[0] = x[0];
    d[1] = x[1];
  }
};

template <int kBits>
bool transposes_as_mapped() {
  constexpr int kElements = 64 / kBits;
  const auto numbers = trace_elements(64, kElements, kBits, 8, 64, 2, kBits, run_movement<ReadTransposed<kBits>>);
  for (int lane = 0; lane < 64; ++lane) {
    for (int n = 0; n < kElements; ++n) {
      const auto x = gfx950::transposed_coord<kBits>(lane, n);
      if (numbers[lane][n] != x.lane * kElements + x.element) return false;
    }
  }
  return true;
}

/// Each lane loads 16 bytes of its own choice straight to LDS, as the kernels do or by the global instruction, and reads back the 16
/// bytes of its own number.
/// @tparam kFirst  words of LDS before the target: m0 holds where that is
/// @param upper    source of lanes 32 to 63
template <bool kGlobal, int kFirst>
__global__ void load_direct(const std::uint32_t* source, const std::uint32_t* upper, const std::uint32_t* row, std::uint32_t* out) {
  __shared__ alignas(128) std::uint32_t lds[kFirst + 64 * 4];
  const int lane = glue::lane_index();
  for (int i = 0; i < 4; ++i) lds[kFirst + lane * 4 + i] = ~0u;
  const std::uint32_t* const from = (lane < 32 ? source : upper) + row[lane] * 4;
  glue::barrier();
  if constexpr (kGlobal) {
    gfx950::load_to_lds<16>(from, lds + kFirst);
    gfx950::wait_loads<0>();
  } else {
#if defined(__gfx950__)
    gfx950::WaveExec exec(reinterpret_cast<std::uint8_t*>(lds), 1);
    exec.copy_async_16({lane}, static_cast<std::uint32_t>(4 * kFirst + 16 * lane), from, true);
    exec.copy_commit();
    exec.template copy_wait<0>();
#endif
  }
  glue::barrier();
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = lds[kFirst + lane * 4 + i];
}

/// @param apart  bytes from the source of lanes 0 to 31 to that of the others
template <bool kGlobal, int kFirst = 0>
bool loads_directly_as_mapped(std::size_t apart = 0) {
  std::uint32_t source[256];
  std::uint32_t row[64];
  std::uint32_t result[256];
  for (std::uint32_t i = 0; i < 256; ++i) source[i] = i;
  for (std::uint32_t i = 0; i < 64; ++i) row[i] = i * 11 % 64;
  const DeviceBuffer device_source(apart + sizeof source);
  auto* const upper = reinterpret_cast<std::uint32_t*>(device_source.as<std::uint8_t>() + apart);
  const DeviceBuffer device_row(sizeof row);
  const DeviceBuffer device_out(sizeof result);
  glue::to_device(device_source.as<void>(), source, sizeof source);
  glue::to_device(upper, source, sizeof source);
  glue::to_device(device_row.as<void>(), row, sizeof row);
  load_direct<kGlobal, kFirst><<<1, 64>>>(device_source.as<std::uint32_t>(), upper, device_row.as<std::uint32_t>(),
                                          device_out.as<std::uint32_t>());
  glue::check_launch();
  glue::to_host(result, device_out.as<void>(), sizeof result);
  for (std::uint32_t lane = 0; lane < 64; ++lane) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (result[lane * 4 + i] != row[lane] * 4 + i) return false;
    }
  }
  return true;
}

/// What a conversion makes of a byte in a word of others, and the two values that this has to be. E2M1: the lower code of the lowest
/// byte, and the higher of the highest.
struct ConvertE2m1 {
  template <class Element>
  __attribute__((device)) static std::uint32_t of(std::uint32_t byte) {
    const std::uint32_t word = byte | (byte ^ 0xaau) << 8 | (byte ^ 0x55u) << 16 | (byte ^ 0x0fu) << 24;
    const std::uint32_t lowest = gfx950::e2m1_byte_to<Element>(word), highest = gfx950::e2m1_byte_to<Element, true>(word);
    return (lowest & 0xffffu) | (highest & 0xffff0000u);
  }
  static float low(std::uint32_t byte) { return core::E2M1::decode(static_cast<std::uint8_t>(byte & 15u)); }
  static float high(std::uint32_t byte) { return core::E2M1::decode(static_cast<std::uint8_t>(byte >> 4)); }
};
/// E4M3: the code in the lowest byte, converted with its neighbour, and in the highest.
struct ConvertE4m3 {
  template <class Element>
  __attribute__((device)) static std::uint32_t of(std::uint32_t byte) {
    const std::uint32_t word = byte | (byte ^ 0xaau) << 8 | (byte ^ 0x55u) << 16 | byte << 24;
    const std::uint32_t first = std::is_same_v<Element, core::BF16> ? gfx942::e4m3_to_bf16<0>(word) : gfx942::e4m3_to_f16<0>(word);
    const std::uint32_t second = std::is_same_v<Element, core::BF16> ? gfx942::e4m3_to_bf16<1>(word) : gfx942::e4m3_to_f16<1>(word);
    return (first & 0xffffu) | (second & 0xffff0000u);
  }
  static float low(std::uint32_t byte) { return core::E4M3::decode(static_cast<std::uint8_t>(byte)); }
  static float high(std::uint32_t byte) { return low(byte); }
};

template <class Convert, class Element>
__global__ void convert_bytes(std::uint32_t* out) {
  const int lane = glue::lane_index();
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<std::uint32_t>(lane + 64 * i);
    out[byte] = Convert::template of<Element>(byte);
  }
}

/// Every byte; which bits a NaN has is free.
template <class Convert, class Element>
bool converts_exactly() {
  constexpr bool kBf16 = std::is_same_v<Element, core::BF16>;
  std::uint32_t result[256];
  const DeviceBuffer out(sizeof result);
  convert_bytes<Convert, Element><<<1, 64>>>(out.as<std::uint32_t>());
  glue::check_launch();
  glue::to_host(result, out.as<void>(), sizeof result);
  const auto is = [](std::uint32_t bits, float want) {
    if (want != want) return (bits & 0x7fffu) > (kBf16 ? 0x7f80u : 0x7c00u);
    return bits == std::uint32_t{kBf16 ? core::f32_to_bf16(want) : core::f32_to_f16(want)};
  };
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (!is(result[byte] & 0xffffu, Convert::low(byte)) || !is(result[byte] >> 16, Convert::high(byte))) return false;
  }
  return true;
}

template <template <class, class> class Instruction>
void check_shape(Report& report, const char* shape, bool all_selects) {
  const auto check = [&]<class A, class B>(A, B, const char* types) {
    const std::string name = std::string(shape) + types;
    const SelectPairs pairs = all_selects ? select_pairs<typename Instruction<A, B>::Atom>() : SelectPairs{{}};
    check_instruction<Instruction<A, B>>(report, name.c_str(), pairs);
    DeviceExecutor<Instruction<A, B>> executor;
    report.add(name.c_str(), check_probe(executor, pairs));
  };
  check(core::E4M3{}, core::E2M1{}, " e4m3 e2m1");
  check(core::E2M1{}, core::E4M3{}, " e2m1 e4m3");
  check(core::E2M1{}, core::E2M1{}, " e2m1 e2m1");
  check(core::E4M3{}, core::E4M3{}, " e4m3 e4m3");
}

}  // namespace
}  // namespace fp4pa::conformance

int main(int argc, char** argv) {
  using namespace fp4pa;
  using namespace fp4pa::conformance;
  const std::string architecture = glue::architecture();
  if (architecture != "gfx950") {
    std::printf(architecture.empty() ? "no device\n" : "no gfx950 device\n");
    return kSkipped;
  }
  const std::string argument = argc > 1 ? argv[1] : "";
  const bool all = argument == "--all";
  Report report;
  check_shape<gfx950::MfmaScaleF32_16x16x128_F8f6f4_Instruction>(report, "mfma_scale 16x16x128", all);
  report.add("ds_read_b64_tr_b16", transposes_as_mapped<16>());
  report.add("e2m1 to f16 and bf16", converts_exactly<ConvertE2m1, core::F16>() && converts_exactly<ConvertE2m1, core::BF16>());
  report.add("e4m3 to f16 and bf16", converts_exactly<ConvertE4m3, core::F16>() && converts_exactly<ConvertE4m3, core::BF16>());
  report.add("direct loads to LDS", loads_directly_as_mapped<false>());
  report.add("direct loads to LDS behind 64 KiB", loads_directly_as_mapped<false, 36000>());
  if (argument == "--large") {
    report.add("direct loads from sources 4.25 GiB apart", loads_directly_as_mapped<false>((std::size_t{1} << 32) + (std::size_t{1} << 28)));
  }
  if (all) {
    check_shape<gfx950::MfmaScaleF32_32x32x64_F8f6f4_Instruction>(report, "mfma_scale 32x32x64", all);
    report.add("ds_read_b64_tr_b4", transposes_as_mapped<4>());
    report.add("ds_read_b64_tr_b8", transposes_as_mapped<8>());
    report.add("global_load_lds_dwordx4", loads_directly_as_mapped<true>());
  } else {
    for (const char* const name : {"mfma_scale 16x16x128, upper bytes of a scale word", "mfma_scale 32x32x64", "ds_read_b64_tr_b4",
                                   "ds_read_b64_tr_b8", "global_load_lds_dwordx4"}) {
      std::printf("  %-52s not executed: no kernel uses it (--all)\n", name);
    }
  }
  return report.status();
}
