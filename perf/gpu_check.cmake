# Included by gpu_check.sh behind project(): the GPU's tests as targets of a tree that is configured without the other tests, whose
# dependencies a GPU machine may lack.
include("${CMAKE_CURRENT_LIST_DIR}/../cmake/CudaDialect.cmake")  # here: what the function below includes ends with the function
function(fp4pa_gpu_check)
  enable_testing()
  if(NOT TARGET fp4pa_test_gpu AND NOT TARGET fp4pa_test_hip)
    # Included and not added: a deferred call may not add a directory.
    include("${PROJECT_SOURCE_DIR}/tests/gpu/CMakeLists.txt")
  endif()
endfunction()
cmake_language(DEFER CALL fp4pa_gpu_check)
