# What pkg-config says of folders that were given in full: those folders, whatever the prefix.
file(REMOVE_RECURSE "${BUILD}")
execute_process(COMMAND ${CMAKE_COMMAND} -S "${FP4PA_SOURCE}" -B "${BUILD}" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
  "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}" "-Dhwy_DIR=${HWY_DIR}" -DFP4PA_CUDA=OFF -DFP4PA_HIP=OFF
  -DFP4PA_TOOL=OFF -DFP4PA_EXAMPLES=OFF -DFP4PA_TESTS=OFF -DFP4PA_BENCHMARKS=OFF
  -DCMAKE_INSTALL_PREFIX=/somewhere -DCMAKE_INSTALL_LIBDIR=/elsewhere/lib64 -DCMAKE_INSTALL_INCLUDEDIR=/elsewhere/headers
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
set(ENV{PKG_CONFIG_PATH} "${BUILD}")
foreach(pair "libdir|/elsewhere/lib64" "includedir|/elsewhere/headers")
  string(REPLACE "|" ";" pair "${pair}")
  list(GET pair 0 variable)
  list(GET pair 1 wanted)
  execute_process(COMMAND ${PKG_CONFIG} --variable=${variable} fp4pa OUTPUT_VARIABLE is OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  if(NOT is STREQUAL wanted)
    message(FATAL_ERROR "${variable} is ${is}; wanted: ${wanted}")
  endif()
endforeach()
