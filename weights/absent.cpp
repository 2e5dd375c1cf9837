// The same calls in a build without a JSON parser.
#include "api/error.hpp"
#include "fp4pa/gemm.hpp"

namespace fp4pa {
namespace {

[[nodiscard]] Status absent() noexcept {
  return api::fail(Status::kBackendUnavailable, "this build has no weights in files: nlohmann-json was not found when it was configured");
}

}  // namespace

Status fp4_find_weight(const char*, const char*, Fp4Weight*) noexcept { return absent(); }
Status fp4_load_weight(const char*, const char*, void*, void*, float*, Fp4Weight*) noexcept { return absent(); }
Status fp4_save_weight(const char*, const char*, const Fp4Weight&) noexcept { return absent(); }

}  // namespace fp4pa
