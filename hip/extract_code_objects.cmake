# cmake -P: takes the code objects out of bundles, <bundle>.<architecture>.hsaco, and lists their kernels in kernels.txt.
#
#   OUT=folder  BUNDLES=a.hipfb,b.hipfb  ARCHITECTURES=gfx942,gfx950  BUNDLER=clang-offload-bundler  READELF=llvm-readelf
file(REMOVE_RECURSE "${OUT}")
file(MAKE_DIRECTORY "${OUT}")
string(REPLACE "," ";" BUNDLES "${BUNDLES}")
string(REPLACE "," ";" ARCHITECTURES "${ARCHITECTURES}")
set(list "")
foreach(bundle IN LISTS BUNDLES)
  get_filename_component(stem "${bundle}" NAME_WE)
  foreach(architecture IN LISTS ARCHITECTURES)
    set(object "${OUT}/${stem}.${architecture}.hsaco")
    execute_process(
      COMMAND "${BUNDLER}" --type=o --unbundle "--targets=hipv4-amdgcn-amd-amdhsa--${architecture}"
              "--input=${bundle}" "--output=${object}"
      COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${READELF}" --notes "${object}" OUTPUT_VARIABLE notes COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "\\.symbol: +[^\n]+\\.kd" kernels "${notes}")
    foreach(kernel IN LISTS kernels)
      string(REGEX REPLACE "\\.symbol: +([^\n]+)\\.kd" "\\1" kernel "${kernel}")
      string(APPEND list "${stem}.${architecture}.hsaco ${kernel}\n")
    endforeach()
  endforeach()
endforeach()
file(WRITE "${OUT}/kernels.txt" "${list}")
