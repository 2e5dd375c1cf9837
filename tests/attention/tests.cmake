# The attention tests once for each instruction set, and on one thread.
#
# Included by tests/CMakeLists.txt after fp4pa_test_area(attention ...).
if(TARGET fp4pa_test_attention)
  fp4pa_each_instruction_set(attention ARGUMENTS --test-suite=tile_ops,paths)
  # One thread granted where two are planned: OpenMP's limit is read when the process starts.
  add_test(NAME attention.one_thread COMMAND fp4pa_test_attention --test-suite=paths)
  set_tests_properties(attention.one_thread PROPERTIES LABELS attention TIMEOUT 900 ENVIRONMENT "OMP_THREAD_LIMIT=1")
  fp4pa_expect_cases(attention.one_thread)
endif()
