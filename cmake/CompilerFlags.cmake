# How our own code is compiled: warnings, visibility, arithmetic, sanitizers. Nothing here reaches a user's targets.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "libfp4pa needs g++ 12 or newer; found ${CMAKE_CXX_COMPILER_VERSION}")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "libfp4pa needs clang 16 or newer; found ${CMAKE_CXX_COMPILER_VERSION}")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(FP4PA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(FP4PA_CCACHE_PROGRAM ccache)
  mark_as_advanced(FP4PA_CCACHE_PROGRAM)
  if(FP4PA_CCACHE_PROGRAM)
    set(CMAKE_C_COMPILER_LAUNCHER "${FP4PA_CCACHE_PROGRAM}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${FP4PA_CCACHE_PROGRAM}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${FP4PA_CCACHE_PROGRAM}")
  endif()
endif()

# Usage requirements of our own targets; never installed.
add_library(fp4pa_flags INTERFACE)
target_compile_options(fp4pa_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${FP4PA_WERROR}>>:-Werror>
  # A multiply and an add fuse only where the source says so (Highway's MulAdd): the encoders are bit-exact by contract,
  # and the SIMD and scalar targets must not differ by what the compiler happened to contract.
  $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)

if(FP4PA_SANITIZE)
  # Every report ends the program: a test that only prints is a test that passes.
  add_compile_options(-fsanitize=${FP4PA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FP4PA_SANITIZE})
endif()

if(FP4PA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

# An object library of ours, with paths relative to the source root.
function(fp4pa_object_library name)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE sources)
  add_library(${name} OBJECT ${sources})
  target_link_libraries(${name} PRIVATE fp4pa_core fp4pa_flags)
  set_property(GLOBAL APPEND PROPERTY FP4PA_OBJECT_LIBRARIES ${name})
endfunction()
