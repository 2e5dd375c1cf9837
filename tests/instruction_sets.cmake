# fp4pa_each_instruction_set(<area> ARGUMENTS <arguments>... [ENVIRONMENT <settings>...]): tests of an area once for each instruction set:
# which one a process uses is decided when it first asks, so every set is a process of its own.
#
# A set that this machine lacks is reported as skipped where tests say so (attention/test_tile_ops.cpp, where a set that the machine
# has and that did not run is a failure, too); the others then repeat themselves on the best set below.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(fp4pa_instruction_sets SSE4 AVX2 AVX3 AVX3_DL)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(fp4pa_instruction_sets NEON)
else()
  set(fp4pa_instruction_sets)
endif()

function(fp4pa_each_instruction_set area)
  cmake_parse_arguments(arg "" "" "ARGUMENTS;ENVIRONMENT" ${ARGN})
  foreach(instructions IN LISTS fp4pa_instruction_sets)
    add_test(NAME ${area}.${instructions} COMMAND fp4pa_test_${area} ${arg_ARGUMENTS})
    set_tests_properties(${area}.${instructions} PROPERTIES
      LABELS "${area};slow" TIMEOUT 900
      ENVIRONMENT "FP4PA_CPU_TARGET=${instructions};${arg_ENVIRONMENT}"
      SKIP_REGULAR_EXPRESSION "this CPU lacks instruction set")
    fp4pa_expect_cases(${area}.${instructions})
  endforeach()
endfunction()
