# The shared and the static library, from the same objects. The SONAME carries the ABI version of fp4pa/version.hpp, not
# the release: releases that keep the ABI replace each other in place.

get_property(object_libraries GLOBAL PROPERTY FP4PA_OBJECT_LIBRARIES)
set(objects)
foreach(library IN LISTS object_libraries)
  list(APPEND objects $<TARGET_OBJECTS:${library}>)
endforeach()
# Objects that a compiler of another language made (hip/).
get_property(external_objects GLOBAL PROPERTY FP4PA_EXTERNAL_OBJECTS)
get_property(external_targets GLOBAL PROPERTY FP4PA_EXTERNAL_OBJECT_TARGETS)
set_source_files_properties(${external_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
list(APPEND objects ${external_objects})

add_library(fp4pa SHARED ${objects})
add_library(fp4pa_static STATIC ${objects})
add_library(fp4pa::fp4pa ALIAS fp4pa)
add_library(fp4pa::static ALIAS fp4pa_static)

foreach(library fp4pa fp4pa_static)
  target_include_directories(${library} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${library} PRIVATE cxx_std_20 INTERFACE $<INSTALL_INTERFACE:cxx_std_20>)
  # A folder that has no C++ of its own, a C project that adds this one, cannot even be told which standard it is.
  if(PROJECT_IS_TOP_LEVEL OR FP4PA_PARENT_HAS_CXX)
    target_compile_features(${library} INTERFACE $<BUILD_INTERFACE:cxx_std_20>)
  endif()
  target_link_libraries(${library} PRIVATE hwy::hwy OpenMP::OpenMP_CXX)
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX)
  if(external_targets)
    add_dependencies(${library} ${external_targets})
  endif()
endforeach()
set_target_properties(fp4pa PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${FP4PA_ABI_VERSION})
set_target_properties(fp4pa_static PROPERTIES OUTPUT_NAME fp4pa EXPORT_NAME static)

# A symbol that no object defines is found here, not in a user's program. Sanitizer runtimes are resolved by the program.
if(NOT FP4PA_SANITIZE)
  target_link_options(fp4pa PRIVATE LINKER:--no-undefined)
endif()

# Object libraries of GPU back ends bring their runtime with fp4pa_link_private().
function(fp4pa_link_private)
  target_link_libraries(fp4pa PRIVATE ${ARGN})
  target_link_libraries(fp4pa_static PRIVATE ${ARGN})
endfunction()
