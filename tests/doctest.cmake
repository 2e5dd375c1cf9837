# fp4pa_doctest: doctest with its implementation, which takes as long to compile as the tests of an area. Not a target where
# doctest is not found.
include("${CMAKE_CURRENT_LIST_DIR}/../cmake/BareHeader.cmake")
find_package(doctest CONFIG QUIET)
fp4pa_bare_header(doctest::doctest doctest/doctest.h FP4PA_DOCTEST_INCLUDE)
if(TARGET doctest::doctest AND NOT TARGET fp4pa_doctest)
  add_library(fp4pa_doctest STATIC "${CMAKE_CURRENT_LIST_DIR}/doctest.cpp")
  target_link_libraries(fp4pa_doctest PUBLIC doctest::doctest PRIVATE fp4pa_flags)
endif()
