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
  add_library(hwy::hwy ALIAS PkgConfig::FP4PA_HWY)
endif()
