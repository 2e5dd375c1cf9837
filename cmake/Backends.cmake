# Which GPU back ends are built. Each engine's folder has its own CMakeLists.txt that adds one object library per
# architecture with fp4pa_object_library(); here it is decided only whether that folder is entered, and why not.
#
# Sets FP4PA_BUILD_CUDA, FP4PA_BUILD_HIP and a sentence for the summary in FP4PA_CUDA_REASON, FP4PA_HIP_REASON.

# Ends a decision: what was found, or why the back end is left out (an error when it was asked for by name).
function(fp4pa_decide engine found reason)
  if(found)
    set(FP4PA_BUILD_${engine} TRUE PARENT_SCOPE)
  else()
    set(FP4PA_BUILD_${engine} FALSE PARENT_SCOPE)
    if(FP4PA_${engine} STREQUAL "ON")
      message(FATAL_ERROR "FP4PA_${engine} is ON, but ${reason}")
    endif()
  endif()
  set(FP4PA_${engine}_REASON "${reason}" PARENT_SCOPE)
endfunction()

if(FP4PA_CUDA STREQUAL "OFF")
  fp4pa_decide(CUDA FALSE "switched off by FP4PA_CUDA")
elseif(NOT EXISTS "${PROJECT_SOURCE_DIR}/cuda/CMakeLists.txt")
  fp4pa_decide(CUDA FALSE "this source tree has no cuda/CMakeLists.txt")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    fp4pa_decide(CUDA FALSE "no nvcc was found (CUDA Toolkit 12.9 or newer)")
  else()
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.9)
      fp4pa_decide(CUDA FALSE "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.9")
    else()
      fp4pa_decide(CUDA TRUE "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
    endif()
  endif()
endif()

# HIP is compiled by a clang that knows the architectures, as C++ with -x hip, so that a distribution's clang and HIP
# headers are enough and no ROCm installation is.
if(FP4PA_HIP STREQUAL "OFF")
  fp4pa_decide(HIP FALSE "switched off by FP4PA_HIP")
elseif(NOT EXISTS "${PROJECT_SOURCE_DIR}/hip/CMakeLists.txt")
  fp4pa_decide(HIP FALSE "this source tree has no hip/CMakeLists.txt")
else()
  find_program(FP4PA_HIP_COMPILER NAMES amdclang++ clang++-22 clang++-21 clang++-20
               HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES bin llvm/bin)
  find_path(FP4PA_HIP_INCLUDE_DIR hip/hip_runtime_api.h HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include)
  # Where HIP's headers come from a ROCm installation its library is beside them, else where the linker looks.
  get_filename_component(hip_prefix "${FP4PA_HIP_INCLUDE_DIR}" DIRECTORY)
  find_library(FP4PA_HIP_LIBRARY amdhip64 HINTS "${hip_prefix}/lib")
  if(NOT FP4PA_HIP_COMPILER)
    fp4pa_decide(HIP FALSE "no clang for gfx950 was found (clang 20 or newer, or ROCm's amdclang++)")
  elseif(NOT FP4PA_HIP_INCLUDE_DIR OR NOT FP4PA_HIP_LIBRARY)
    fp4pa_decide(HIP FALSE "hip/hip_runtime_api.h or libamdhip64 was not found (Debian and Ubuntu: libamdhip64-dev)")
  else()
    execute_process(
      COMMAND "${FP4PA_HIP_COMPILER}" -x hip --offload-arch=gfx950 --cuda-device-only -nogpulib -nogpuinc -fsyntax-only
              "${PROJECT_SOURCE_DIR}/core/macros.hpp"
      RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(refused)
      fp4pa_decide(HIP FALSE "${FP4PA_HIP_COMPILER} does not compile for gfx950 (clang 20 or newer, or ROCm 6.4's amdclang++)")
    else()
      fp4pa_decide(HIP TRUE "${FP4PA_HIP_COMPILER}, ${FP4PA_HIP_LIBRARY}")
    endif()
  endif()
endif()
