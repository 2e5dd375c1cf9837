# The test "isa_gates": the machine code of the kernels in this build against perf/isa_gates.json. Skipped where the
# tools that read it are missing.
if(NOT FP4PA_BUILD_CUDA AND NOT FP4PA_BUILD_HIP)
  return()
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_Interpreter_FOUND)
  return()
endif()
add_test(NAME isa_gates COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/perf/isa_gates.py" check "${PROJECT_BINARY_DIR}")
set_tests_properties(isa_gates PROPERTIES LABELS gates TIMEOUT 600 SKIP_REGULAR_EXPRESSION "needed to read (NVIDIA|AMD)")
