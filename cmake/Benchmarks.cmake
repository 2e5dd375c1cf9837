# perf/microbench: append, gather, quantise and the conversions in GB/s, on Google Benchmark.

set(FP4PA_BENCHMARKS_REASON "")
if(NOT FP4PA_BENCHMARKS)
  set(FP4PA_BENCHMARKS_REASON "switched off by FP4PA_BENCHMARKS")
  return()
endif()
find_package(benchmark CONFIG QUIET)
if(NOT TARGET benchmark::benchmark)
  set(FP4PA_BENCHMARKS_REASON "not found: Google Benchmark")
  return()
endif()
add_executable(fp4pa_microbench
  perf/microbench/cache_ops.cpp
  perf/microbench/conversions.cpp
  perf/microbench/quantize.cpp)
set_target_properties(fp4pa_microbench PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
target_link_libraries(fp4pa_microbench PRIVATE fp4pa_core fp4pa_static fp4pa_flags benchmark::benchmark
                      OpenMP::OpenMP_CXX)
