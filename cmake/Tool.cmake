# The command-line tool, the parts of it that tests and fuzzers link, and the double-precision reference it compares with.

add_library(fp4pa_reference INTERFACE)
target_link_libraries(fp4pa_reference INTERFACE fp4pa_core)

set(FP4PA_TOOL_REASON "")
if(NOT FP4PA_TOOL)
  set(FP4PA_TOOL_REASON "switched off by FP4PA_TOOL")
  return()
endif()

set(missing)
find_package(CLI11 CONFIG QUIET)
find_package(fmt CONFIG QUIET)
fp4pa_bare_header(CLI11::CLI11 CLI/CLI.hpp FP4PA_CLI11_INCLUDE)
if(NOT TARGET fmt::fmt)
  fp4pa_bare_header(fmt::fmt fmt/format.h FP4PA_FMT_INCLUDE)
  if(TARGET fmt::fmt)
    target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
  endif()
endif()
foreach(pair "CLI11::CLI11|CLI11" "nlohmann_json::nlohmann_json|nlohmann-json" "fmt::fmt|fmt")
  string(REPLACE "|" ";" pair "${pair}")
  list(GET pair 0 target)
  list(GET pair 1 called)
  if(NOT TARGET ${target})
    list(APPEND missing ${called})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  set(FP4PA_TOOL_REASON "not found: ${missing}")
  return()
endif()

# `fp4pa info --kernels` prints the gates' table, wherever the tool is installed.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/perf/isa_gates.json")
file(READ "${PROJECT_SOURCE_DIR}/perf/isa_gates.json" isa_gates)
configure_file(tools/fp4pa/isa_gates.cpp.in "${PROJECT_BINARY_DIR}/isa_gates.cpp" @ONLY)

# Files that hold templates of CLI11 (command_line.cpp alone) or of JSON, which run once per start.
set(command_sources
    attend command_line bench bench_append bench_bandwidth bench_compare bench_copy bench_decode bench_dense bench_gemm
    bench_merge bench_quantize bench_report bench_suite bench_two_tier gemm info info_kernels json_output quantize)
list(TRANSFORM command_sources PREPEND "${PROJECT_SOURCE_DIR}/tools/fp4pa/")
list(TRANSFORM command_sources APPEND ".cpp")
add_library(fp4pa_tool_parts STATIC
  "${PROJECT_BINARY_DIR}/isa_gates.cpp"
  ${command_sources}
  tools/fp4pa/attend_cache.cpp
  tools/fp4pa/attend_input.cpp
  tools/fp4pa/attend_run.cpp
  tools/fp4pa/decode_case.cpp
  tools/fp4pa/device.cpp
  tools/fp4pa/device_cpu.cpp
  tools/fp4pa/paged_cache.cpp
  tools/fp4pa/product_error.cpp
  tools/fp4pa/sum_words.cpp
  tools/fp4pa/variant.cpp)
target_link_libraries(fp4pa_tool_parts
  PUBLIC fp4pa_core fp4pa_static fp4pa_reference CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt
  PRIVATE fp4pa_flags OpenMP::OpenMP_CXX)

if(FP4PA_BUILD_CUDA)
  # The GPU's memory and clock, and the kernel that measures its read bandwidth.
  add_library(fp4pa_tool_cuda OBJECT perf/gpu_bandwidth.cu)
  target_include_directories(fp4pa_tool_cuda PRIVATE "${PROJECT_SOURCE_DIR}")
  set_target_properties(fp4pa_tool_cuda PROPERTIES CUDA_ARCHITECTURES "${FP4PA_CUDA_ARCHITECTURES}" CUDA_STANDARD 17
                        CUDA_RUNTIME_LIBRARY Static)
  target_sources(fp4pa_tool_parts PRIVATE tools/fp4pa/device_cuda.cpp $<TARGET_OBJECTS:fp4pa_tool_cuda>)
  target_link_libraries(fp4pa_tool_parts PRIVATE CUDA::cudart_static)
  target_compile_definitions(fp4pa_tool_parts PRIVATE FP4PA_HAVE_CUDA)
endif()

if(FP4PA_BUILD_HIP)
  get_property(bandwidth_objects GLOBAL PROPERTY fp4pa_hip_bandwidth_OBJECTS)
  set_source_files_properties(${bandwidth_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set_source_files_properties(tools/fp4pa/device_hip.cpp PROPERTIES COMPILE_DEFINITIONS __HIP_PLATFORM_AMD__)
  target_include_directories(fp4pa_tool_parts SYSTEM PRIVATE "${FP4PA_HIP_INCLUDE_DIR}")
  target_sources(fp4pa_tool_parts PRIVATE tools/fp4pa/device_hip.cpp ${bandwidth_objects})
  target_link_libraries(fp4pa_tool_parts PRIVATE "${FP4PA_HIP_LIBRARY}")
  target_compile_definitions(fp4pa_tool_parts PRIVATE FP4PA_HAVE_HIP)
  add_dependencies(fp4pa_tool_parts fp4pa_hip_bandwidth)
endif()

# They take 1.4 times as long at -O3 as at -O1 (g++ 12: 5 to 7 s), and it is them that a first `./run attend` waits for. With sanitizers their
# headers are read once. Plain builds read them every time, for the sake of compiler caches: objects made with a precompiled header are of
# use to no other build folder. The files that compute keep the build type's level.
if(FP4PA_SANITIZE)
  get_target_property(computing_sources fp4pa_tool_parts SOURCES)
  list(REMOVE_ITEM computing_sources ${command_sources})
  set_source_files_properties(${computing_sources} PROPERTIES COMPILE_OPTIONS "-O1" SKIP_PRECOMPILE_HEADERS ON)
  set_source_files_properties(tools/fp4pa/main.cpp PROPERTIES COMPILE_OPTIONS "-O0")
  target_compile_options(fp4pa_tool_parts PRIVATE -O0)
  target_precompile_headers(fp4pa_tool_parts PRIVATE <fmt/format.h> <nlohmann/json.hpp>)
else()
  set_source_files_properties(${command_sources} "${PROJECT_SOURCE_DIR}/tools/fp4pa/main.cpp" PROPERTIES
    COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O1>")
endif()

add_executable(fp4pa_tool tools/fp4pa/main.cpp)
set_target_properties(fp4pa_tool PROPERTIES OUTPUT_NAME fp4pa RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
target_link_libraries(fp4pa_tool PRIVATE fp4pa_tool_parts fp4pa_flags)
