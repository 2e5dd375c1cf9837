# The Python package fp4pa: python/src over the static library, built by `pip install .` (pyproject.toml) or here with FP4PA_PYTHON.

set(FP4PA_PYTHON_REASON "")
if(NOT FP4PA_PYTHON)
  set(FP4PA_PYTHON_REASON "switched off by FP4PA_PYTHON")
  return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT nanobind_DIR AND NOT nanobind_ROOT)  # where it is a package of this Python
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT ERROR_QUIET)
endif()
find_package(nanobind 3.1 CONFIG REQUIRED)

nanobind_add_module(fp4pa_python NB_STATIC NB_SUPPRESS_WARNINGS
  python/src/bind_attention.cpp
  python/src/bind_cache.cpp
  python/src/bind_cache_operations.cpp
  python/src/bind_dense.cpp
  python/src/bind_gemm.cpp
  python/src/bind_quantize.cpp
  python/src/cache.cpp
  python/src/error.cpp
  python/src/exec.cpp
  python/src/module.cpp
  python/src/tensor.cpp
  python/src/torch.cpp)
target_link_libraries(fp4pa_python PRIVATE fp4pa_core fp4pa_static fp4pa_flags)
# Nothing of the archives is exported: where a compiler links its C++ library as one, PyTorch would find our operator delete.
target_link_options(fp4pa_python PRIVATE LINKER:--exclude-libs,ALL)
# The package lies together in the build folder, too, where PYTHONPATH finds it.
set(package_dir "${PROJECT_BINARY_DIR}/python/fp4pa")
set_target_properties(fp4pa_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY "${package_dir}")
foreach(file __init__.py _error.py py.typed)
  configure_file(python/fp4pa/${file} "${package_dir}/${file}" COPYONLY)
endforeach()
nanobind_add_stub(fp4pa_python_stub MODULE fp4pa._core OUTPUT "${package_dir}/_core.pyi" PYTHON_PATH "${PROJECT_BINARY_DIR}/python" DEPENDS fp4pa_python)
install(TARGETS fp4pa_python LIBRARY DESTINATION fp4pa COMPONENT fp4pa_python)
install(FILES "${package_dir}/_core.pyi" DESTINATION fp4pa COMPONENT fp4pa_python)
