# Generates a project that adds the source tree to its own. Building it would be building the library once more.
file(REMOVE_RECURSE "${BUILD}")
string(REPLACE "," ";" LANGUAGES "${LANGUAGES}")
execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE}/subdirectory" -B "${BUILD}" -G "${GENERATOR}"
  "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}" "-Dhwy_DIR=${HWY_DIR}"
  "-DFP4PA_SOURCE=${FP4PA_SOURCE}" "-DLANGUAGES=${LANGUAGES}" -DFP4PA_CUDA=OFF -DFP4PA_HIP=OFF COMMAND_ERROR_IS_FATAL ANY)
# What that project installs is its own choice.
file(GLOB_RECURSE scripts "${BUILD}/fp4pa/*cmake_install.cmake")
foreach(script IN LISTS scripts)
  file(STRINGS "${script}" installed REGEX "libfp4pa|include/fp4pa|fp4paConfig")
  if(installed)
    message(FATAL_ERROR "its installation would have: ${installed}")
  endif()
endforeach()
if(LANGUAGES MATCHES CXX)
  file(STRINGS "${BUILD}/compile_commands.json" command REGEX "\"command\": .*package/cpp/main\\.cpp")
  if(NOT command MATCHES "-std=(c|gnu)\\+\\+(20|2a)")
    message(FATAL_ERROR "C++20 does not reach a consumer: ${command}")
  endif()
endif()
