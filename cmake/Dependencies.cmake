# What the library itself needs: Highway for SIMD that is chosen at run time, OpenMP for threads. Both are private to it.
# The test and tool dependencies are looked for where they are used, and a missing one leaves something out by name.

find_package(OpenMP COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
  message(FATAL_ERROR "OpenMP was not found for ${CMAKE_CXX_COMPILER}. g++ brings its own (libgomp); for clang install its "
                      "libomp development package (Debian: libomp-<version>-dev)")
endif()

find_package(hwy CONFIG QUIET)
if(NOT TARGET hwy::hwy)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(FP4PA_HWY QUIET IMPORTED_TARGET libhwy)
  endif()
  if(NOT FP4PA_HWY_FOUND)
    message(FATAL_ERROR "Google Highway was not found (Debian and Ubuntu: libhwy-dev; or set hwy_DIR)")
  endif()
  # Not an alias: an export names what an alias stands for, which an installed package's user does not have.
  add_library(hwy::hwy INTERFACE IMPORTED)
  target_link_libraries(hwy::hwy INTERFACE PkgConfig::FP4PA_HWY)
  set(hwy_VERSION ${FP4PA_HWY_VERSION})
endif()

# Weights in safetensors files need a JSON parser, of headers alone: without it the library is built, and those calls say so.
include("${CMAKE_CURRENT_LIST_DIR}/BareHeader.cmake")
find_package(nlohmann_json CONFIG QUIET)
fp4pa_bare_header(nlohmann_json::nlohmann_json nlohmann/json.hpp FP4PA_JSON_INCLUDE)
