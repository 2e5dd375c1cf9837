# Included by gpu_check.sh behind project(): the GPU's tests, and the benchmarks that are not in the tool, as targets of a tree that
# is configured without the other tests, whose dependencies a GPU machine may lack.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # see cuda/CMakeLists.txt
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
function(fp4pa_gpu_check)
  enable_testing()
  if(NOT TARGET fp4pa_test_gpu AND NOT TARGET fp4pa_test_hip)
    # Included and not added: a deferred call may not add a directory.
    include("${PROJECT_SOURCE_DIR}/tests/gpu/CMakeLists.txt")
  endif()
  if(FP4PA_BUILD_CUDA AND NOT TARGET fp4pa_gpu_gemm)
    find_package(CUDAToolkit REQUIRED)
    add_executable(fp4pa_gpu_gemm "${PROJECT_SOURCE_DIR}/perf/gpu_gemm.cpp" "${PROJECT_SOURCE_DIR}/perf/gpu_bandwidth.cu")
    target_link_libraries(fp4pa_gpu_gemm PRIVATE fp4pa_core fp4pa_static CUDA::cudart_static)
    set_target_properties(fp4pa_gpu_gemm PROPERTIES CUDA_ARCHITECTURES "${FP4PA_CUDA_ARCHITECTURES}"
                          RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  endif()
endfunction()
cmake_language(DEFER CALL fp4pa_gpu_check)
