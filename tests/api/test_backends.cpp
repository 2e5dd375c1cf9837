// Which back end a call gets: by argument, by FP4PA_FORCE_BACKEND, or the first that can run.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "api/backend.hpp"
#include "fp4pa/backends.hpp"
#include "fp4pa/version.hpp"
#include "tests/api/small_cache.hpp"

using namespace fp4pa;

namespace {

/// @param forced  what FP4PA_FORCE_BACKEND is
const char* chosen(const char* name, const char* forced) {
  const api::Backend* backend = nullptr;
  return api::find_backend_or(name, forced, &backend) == Status::kOk ? backend->name : nullptr;
}

}  // namespace

TEST_CASE("the table lists the CPU and its scalar twin, best first, and respects the capacity") {
  BackendInfo info[16] = {};
  const std::int32_t count = available_backends(info, 16);
  REQUIRE(count >= 2);
  REQUIRE(count <= 16);
  CHECK(std::string(info[count - 2].name) == "cpu");
  CHECK(std::string(info[count - 1].name) == "cpu-scalar");
  for (std::int32_t i = 0; i < count; ++i) CHECK(info[i].detail != nullptr);
  CHECK(info[count - 2].available);
  CHECK(info[count - 1].available);

  BackendInfo one[2] = {{"untouched", false, ""}, {"untouched", false, ""}};
  CHECK(available_backends(one, 1) == count);
  CHECK(std::string(one[1].name) == "untouched");
  CHECK(available_backends(nullptr, 0) == count);
}

TEST_CASE("a name wins over the environment, the environment over the order") {
  const api::Backend* first = nullptr;
  for (const api::Backend* backend : api::backends()) {
    const char* detail = "";
    if (backend->available(&detail)) {
      first = backend;
      break;
    }
  }
  REQUIRE(first != nullptr);
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    CHECK(std::string(chosen(nullptr, unset)) == first->name);
  }
  CHECK(std::string(chosen(nullptr, "cpu-scalar")) == "cpu-scalar");
  CHECK(std::string(chosen("cpu", "cpu-scalar")) == "cpu");
}

TEST_CASE("the environment is read once, so that another thread may set its variables") {
  constexpr const char* kName = "FP4PA_FORCE_BACKEND";
  const api::Backend* before = nullptr;
  const api::Backend* after = nullptr;
  REQUIRE(api::find_backend(nullptr, &before) == Status::kOk);
  const char* const value = std::getenv(kName);
  const std::string was = value == nullptr ? "" : value;
  setenv(kName, std::string(before->name) == "cpu-scalar" ? "cpu" : "cpu-scalar", 1);
  CHECK(api::find_backend(nullptr, &after) == Status::kOk);
  was.empty() ? unsetenv(kName) : setenv(kName, was.c_str(), 1);
  CHECK(after == before);
}

TEST_CASE("find_backend reports the index that the table has") {
  const api::Backend* backend = nullptr;
  std::int32_t index = -1;
  REQUIRE(api::find_backend("cpu-scalar", &backend, &index) == Status::kOk);
  CHECK(api::backends()[static_cast<std::size_t>(index)] == backend);
}

TEST_CASE("an unknown back end is named together with the allowed set") {
  test::SmallCache cache;
  ExecDesc exec;
  exec.backend = "tpu";
  FP4PA_CHECK_REFUSED(copy_pages(cache.desc, nullptr, nullptr, 0, exec), Status::kUnknownBackend, "\"tpu\"", "cpu",
                      "cpu-scalar");
}

TEST_CASE("an empty name is not the null that takes the best") {
  test::SmallCache cache;
  ExecDesc exec;
  exec.backend = "";
  FP4PA_CHECK_REFUSED(copy_pages(cache.desc, nullptr, nullptr, 0, exec), Status::kUnknownBackend, "backend is \"\"", "allowed", "cpu, cpu-scalar");
}

TEST_CASE("an unknown name in FP4PA_FORCE_BACKEND names the variable") {
  const api::Backend* backend = nullptr;
  FP4PA_CHECK_REFUSED(api::find_backend_or(nullptr, "avx1024", &backend), Status::kUnknownBackend, "FP4PA_FORCE_BACKEND",
                      "\"avx1024\"", "cpu, cpu-scalar");
}

TEST_CASE("a negative thread count is refused") {
  test::SmallCache cache;
  ExecDesc exec;
  exec.num_threads = -2;
  FP4PA_CHECK_REFUSED(copy_pages(cache.desc, nullptr, nullptr, 0, exec), Status::kInvalidArgument, "num_threads", "-2",
                      "allowed");
  exec.num_threads = 100000;
  FP4PA_CHECK_REFUSED(copy_pages(cache.desc, nullptr, nullptr, 0, exec), Status::kInvalidArgument, "num_threads is 100000", "4096");
}

TEST_CASE("the version names the release and the ABI is the header's") {
  const std::string version = version_string();
  const std::string release = std::to_string(FP4PA_VERSION_MAJOR) + "." + std::to_string(FP4PA_VERSION_MINOR) + "." +
                              std::to_string(FP4PA_VERSION_PATCH) + " (";
  CHECK(version.rfind(release, 0) == 0);
  CHECK(version.find("cpu") != std::string::npos);
  CHECK(abi_version() == FP4PA_ABI_VERSION);
}
