# A build whose Highway has no CMake package: its export names hwy::hwy, which fp4paConfig.cmake makes, and no target of this build.
file(REMOVE_RECURSE "${BUILD}")
execute_process(COMMAND ${CMAKE_COMMAND} -S "${FP4PA_SOURCE}" -B "${BUILD}" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
  "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_DISABLE_FIND_PACKAGE_hwy=TRUE -DFP4PA_CUDA=OFF -DFP4PA_HIP=OFF
  -DFP4PA_TOOL=OFF -DFP4PA_EXAMPLES=OFF -DFP4PA_TESTS=OFF -DFP4PA_BENCHMARKS=OFF
  OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output MATCHES "Highway [0-9]")
  message(FATAL_ERROR "the summary has no version of Highway: ${output}")
endif()
file(GLOB_RECURSE export "${BUILD}/CMakeFiles/Export/*/fp4paStaticTargets.cmake")
file(STRINGS "${export}" link_line REGEX "INTERFACE_LINK_LIBRARIES")
if(NOT link_line MATCHES "hwy::hwy" OR link_line MATCHES "PkgConfig")
  message(FATAL_ERROR "the export asks for: ${link_line}")
endif()
