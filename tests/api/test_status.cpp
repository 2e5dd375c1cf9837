// Status names, and that a failure's sentence belongs to its thread.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>

#include "api/error.hpp"
#include "fp4pa/status.hpp"

using fp4pa::Status;

TEST_CASE("every status has its own name, spelled as in the source") {
  const char* const expected[] = {
      "kOk",                 "kNullPointer",       "kMisalignedPointer", "kInvalidSize",        "kUnsupportedHeadDim",
      "kInvalidHeads",       "kUnsupportedFormat", "kInvalidStrides",    "kInvalidGlobalScale", "kLengthExceedsTable",
      "kBlockIdOutOfRange",  "kSlotOutOfRange",    "kIncompleteGroup",   "kInvalidIndptr",      "kWorkspaceTooSmall",
      "kUnknownBackend",     "kBackendUnavailable", "kInvalidArgument",  "kPlanMismatch",       "kDeviceError",
      "kInternal",
      "kFileError"};
  for (int i = 0; i < static_cast<int>(std::size(expected)); ++i) {
    CHECK(std::string(fp4pa::status_name(static_cast<Status>(i))) == expected[i]);
  }
  CHECK(std::string(fp4pa::status_name(static_cast<Status>(std::size(expected)))) == "kUnknownStatus");
  CHECK(std::string(fp4pa::status_name(static_cast<Status>(-1))) == "kUnknownStatus");
}

TEST_CASE("the detail is kept per thread and truncated without harm") {
  std::thread([] { CHECK(std::strlen(fp4pa::last_error_detail()) == 0); }).join();

  CHECK(fp4pa::api::fail(Status::kInvalidSize, "head_dim is %d", 48) == Status::kInvalidSize);
  CHECK(std::string(fp4pa::last_error_detail()) == "head_dim is 48");
  std::thread([] {
    CHECK(fp4pa::api::fail(Status::kInternal, "other") == Status::kInternal);
    CHECK(std::string(fp4pa::last_error_detail()) == "other");
  }).join();
  CHECK(std::string(fp4pa::last_error_detail()) == "head_dim is 48");

  const std::string lengthy(2000, 'x');
  CHECK(fp4pa::api::fail(Status::kInternal, "%s", lengthy.c_str()) == Status::kInternal);
  CHECK(std::string(fp4pa::last_error_detail()) == std::string(511, 'x'));
}

TEST_CASE("the detail is UTF-8, whatever a file or a caller calls things") {
  const auto detail_of = [](const std::string& text) {
    (void)fp4pa::api::fail(Status::kFileError, "%s", text.c_str());
    return std::string(fp4pa::last_error_detail());
  };
  CHECK(detail_of("gr\xc3\xbc\xc3\x9f dich \xe2\x82\xac \xf0\x9f\x98\x80") == "gr\xc3\xbc\xc3\x9f dich \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(detail_of("a\xff" "b\xc3") == "a?b?");
  CHECK(detail_of("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82") == "?? ??? ???? ??");  // too long, a surrogate, too large, cut
  CHECK(detail_of(std::string(510, 'x') + "\xc3\xbc") == std::string(510, 'x') + '?');
}

TEST_CASE("a failure may quote the one before it") {
  (void)fp4pa::api::fail(Status::kInvalidSize, "page_size is 0");
  (void)fp4pa::api::fail(Status::kInvalidSize, "recent: %s", fp4pa::last_error_detail());
  CHECK(std::string(fp4pa::last_error_detail()) == "recent: page_size is 0");
}
