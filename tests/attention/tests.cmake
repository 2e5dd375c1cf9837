# The attention tests once for each instruction set: which one a process uses is decided when it first asks, so every set
# is a process of its own. A set that this machine lacks is reported as skipped; one that it has and that did not run is a
# failure (test_tile_ops.cpp).
#
# Included by tests/CMakeLists.txt after fp4pa_test_area(attention ...).
if(TARGET fp4pa_test_attention)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(fp4pa_instruction_sets SSSE3 SSE4 AVX2 AVX3 AVX3_DL)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(fp4pa_instruction_sets NEON)
  else()
    set(fp4pa_instruction_sets)
  endif()
  foreach(instructions IN LISTS fp4pa_instruction_sets)
    add_test(NAME attention.${instructions} COMMAND fp4pa_test_attention --test-suite=tile_ops,paths)
    set_tests_properties(attention.${instructions} PROPERTIES
      LABELS "attention;slow" TIMEOUT 900
      ENVIRONMENT "FP4PA_CPU_TARGET=${instructions}"
      SKIP_REGULAR_EXPRESSION "this CPU lacks instruction set")
    fp4pa_expect_cases(attention.${instructions})
  endforeach()
  # One thread granted where two are planned: OpenMP's limit is read when the process starts.
  add_test(NAME attention.one_thread COMMAND fp4pa_test_attention --test-suite=paths)
  set_tests_properties(attention.one_thread PROPERTIES LABELS attention TIMEOUT 900 ENVIRONMENT "OMP_THREAD_LIMIT=1")
  fp4pa_expect_cases(attention.one_thread)
endif()
