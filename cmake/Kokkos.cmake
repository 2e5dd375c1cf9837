# Kokkos for the test harness: any release from 3.4 to 5, as FP4PA_KOKKOS_FOUND and the target fp4pa_kokkos.
#
# Debian packages Kokkos 3.4 as part of Trilinos, with an imported target whose include folder lacks the headers (they lie
# one folder deeper, and the config's own variables may miss by a level as well). Instead of trusting either, the header is
# looked for from the places the package names, and the folder that has it is what fp4pa_kokkos uses.

set(FP4PA_KOKKOS_FOUND FALSE)
set(FP4PA_KOKKOS_REASON "")

# Debian's config forces CMAKE_CXX_EXTENSIONS and prints a warning about it; ours are off already.
find_package(Kokkos CONFIG QUIET)
if(NOT Kokkos_FOUND AND NOT TARGET Kokkos::kokkos)
  set(FP4PA_KOKKOS_REASON "Kokkos was not found (Debian and Ubuntu: libtrilinos-kokkos-dev)")
  return()
endif()
if(Kokkos_VERSION VERSION_LESS 3.4 OR Kokkos_VERSION VERSION_GREATER_EQUAL 6)
  set(FP4PA_KOKKOS_REASON "Kokkos ${Kokkos_VERSION} was found; 3.4 to 5 are supported")
  return()
endif()

get_target_property(kokkos_dirs Kokkos::kokkos INTERFACE_INCLUDE_DIRECTORIES)
set(kokkos_named)
foreach(dir IN LISTS kokkos_dirs Kokkos_INCLUDE_DIRS)
  if(dir AND NOT dir MATCHES "\\$<")
    list(APPEND kokkos_named "${dir}")
  endif()
endforeach()
# Kokkos_DIR is <prefix>/lib[/<arch>]/cmake/Kokkos.
foreach(up "../../.." "../../../..")
  get_filename_component(prefix "${Kokkos_DIR}/${up}" ABSOLUTE)
  list(APPEND kokkos_named "${prefix}/include")
endforeach()
find_path(FP4PA_KOKKOS_INCLUDE_DIR Kokkos_Core.hpp HINTS ${kokkos_named} PATH_SUFFIXES trilinos kokkos)
mark_as_advanced(FP4PA_KOKKOS_INCLUDE_DIR)
if(NOT FP4PA_KOKKOS_INCLUDE_DIR)
  set(FP4PA_KOKKOS_REASON "Kokkos ${Kokkos_VERSION} was found, but not its header Kokkos_Core.hpp")
  return()
endif()

# Folders that an imported target names but that do not exist are an error at generate time: drop them.
set(kokkos_existing)
foreach(dir IN LISTS kokkos_dirs)
  if(dir AND (dir MATCHES "\\$<" OR EXISTS "${dir}"))
    list(APPEND kokkos_existing "${dir}")
  endif()
endforeach()
set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${kokkos_existing}")

add_library(fp4pa_kokkos INTERFACE)
target_include_directories(fp4pa_kokkos SYSTEM INTERFACE "${FP4PA_KOKKOS_INCLUDE_DIR}")
target_link_libraries(fp4pa_kokkos INTERFACE Kokkos::kokkos)
set(FP4PA_KOKKOS_FOUND TRUE)
