# `cmake --install`: headers, both libraries, the tool, find_package(fp4pa CONFIG) and a pkg-config file.
#
# The shared and the static target are in separate export sets: a program that links the shared library must not be asked
# for Highway and OpenMP, which only the static one hands on.

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fp4pa")

install(DIRECTORY include/fp4pa DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(TARGETS fp4pa EXPORT fp4paTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS fp4pa_static EXPORT fp4paStaticTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT fp4paTargets NAMESPACE fp4pa:: DESTINATION "${package_dir}")
install(EXPORT fp4paStaticTargets NAMESPACE fp4pa:: DESTINATION "${package_dir}")
if(TARGET fp4pa_tool)
  install(TARGETS fp4pa_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_package_config_file(cmake/fp4paConfig.cmake.in "${PROJECT_BINARY_DIR}/fp4paConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor release may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fp4paConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/fp4paConfig.cmake" "${PROJECT_BINARY_DIR}/fp4paConfigVersion.cmake"
  DESTINATION "${package_dir}")

# The prefix is found from the file's own place, so that an installed tree can be moved.
file(RELATIVE_PATH FP4PA_PC_PREFIX
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" FP4PA_PC_PREFIX "${FP4PA_PC_PREFIX}")
foreach(dir LIBDIR INCLUDEDIR)  # a folder that was given in full stays where it is
  set(FP4PA_PC_${dir} "${CMAKE_INSTALL_${dir}}")
  if(NOT IS_ABSOLUTE "${FP4PA_PC_${dir}}")
    string(PREPEND FP4PA_PC_${dir} "\${prefix}/")
  endif()
endforeach()
set(FP4PA_PC_LIBS_PRIVATE "-lhwy ${OpenMP_CXX_FLAGS} -lstdc++ -lm")
get_target_property(hwy hwy::hwy LOCATION)
if(hwy)
  get_filename_component(hwy "${hwy}" DIRECTORY)
else()  # it was found by pkg-config
  set(hwy ${FP4PA_HWY_LIBRARY_DIRS})
endif()
foreach(dir IN LISTS hwy)
  if(NOT dir IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    string(PREPEND FP4PA_PC_LIBS_PRIVATE "-L${dir} ")
  endif()
endforeach()
if(FP4PA_BUILD_CUDA)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  get_filename_component(cudart_dir "${cudart}" DIRECTORY)
  string(APPEND FP4PA_PC_LIBS_PRIVATE " -L${cudart_dir} -lcudart_static -ldl -lrt -lpthread")
endif()
if(FP4PA_BUILD_HIP)
  string(APPEND FP4PA_PC_LIBS_PRIVATE " ${FP4PA_HIP_LIBRARY}")
endif()
configure_file(cmake/fp4pa.pc.in "${PROJECT_BINARY_DIR}/fp4pa.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/fp4pa.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
