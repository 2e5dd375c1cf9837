# What perf/isa_gates.py needs of a build beside its objects, and the test "isa_gates": the machine code of the kernels in this build
# against perf/isa_gates.json. Skipped where the tools that read it are missing.
if(NOT FP4PA_BUILD_CUDA AND NOT FP4PA_BUILD_HIP)
  return()
endif()
# What the kernels are launched with, by the code that plans launches. Plain C++ for either back end.
add_executable(fp4pa_isa_shared perf/isa_shared.cpp)
target_link_libraries(fp4pa_isa_shared PRIVATE fp4pa_core fp4pa_flags)
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/isa_shared.json"
  COMMAND fp4pa_isa_shared > "${PROJECT_BINARY_DIR}/isa_shared.json.new"
  COMMAND "${CMAKE_COMMAND}" -E rename "${PROJECT_BINARY_DIR}/isa_shared.json.new" "${PROJECT_BINARY_DIR}/isa_shared.json"
  DEPENDS fp4pa_isa_shared COMMENT "Shared memory of the kernels' launches" VERBATIM)
add_custom_target(fp4pa_isa_launches ALL DEPENDS "${PROJECT_BINARY_DIR}/isa_shared.json")

if(NOT FP4PA_TESTS)
  return()
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_Interpreter_FOUND)
  return()
endif()
add_test(NAME isa_gates COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/perf/isa_gates.py" check "${PROJECT_BINARY_DIR}")
set_tests_properties(isa_gates PROPERTIES LABELS gates TIMEOUT 600 SKIP_REGULAR_EXPRESSION "needed to read (NVIDIA|AMD)")
# That they can fail, on tables made for it.
add_test(NAME isa_gates_fail COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/perf/test_isa_gates.py")
set_tests_properties(isa_gates_fail PROPERTIES LABELS gates)
