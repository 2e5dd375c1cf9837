# Installs the build into an empty prefix and looks whether everything a user needs is there.
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${PREFIX}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

foreach(pattern
    "include/fp4pa/fp4pa.h" "include/fp4pa/fp4pa.hpp" "include/fp4pa/export.hpp" "lib*/libfp4pa.so" "lib*/libfp4pa.a"
    "lib*/*/libfp4pa.so" "lib*/*/libfp4pa.a" "fp4paConfig.cmake" "fp4paConfigVersion.cmake" "fp4pa.pc")
  if(pattern MATCHES "\\.(cmake|pc)$")
    file(GLOB_RECURSE found "${PREFIX}/${pattern}")
  else()
    file(GLOB found "${PREFIX}/${pattern}")
  endif()
  # Libraries lie in lib or in lib/<architecture>, as the distribution has it.
  string(REGEX REPLACE "^lib\\*/(\\*/)?" "" name "${pattern}")
  if(found)
    set(have_${name} TRUE)
  endif()
  list(APPEND names "${name}")
endforeach()
# Libraries of this machine are named by targets, which are found again where the package is used.
file(GLOB_RECURSE export "${PREFIX}/fp4paStaticTargets.cmake")
file(STRINGS "${export}" link_line REGEX "INTERFACE_LINK_LIBRARIES")
if(link_line MATCHES "LINK_ONLY:/")
  message(FATAL_ERROR "the static export has a library's path: ${link_line}")
endif()
list(REMOVE_DUPLICATES names)
foreach(name IN LISTS names)
  if(NOT have_${name})
    message(FATAL_ERROR "the installation has no ${name}")
  endif()
endforeach()
