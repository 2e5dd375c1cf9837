# fp4pa_bare_header(<target> <header> <variable>): where no package has made the target, one for the bare headers, if they are below
# include/ of CMAKE_PREFIX_PATH or of the system: a machine that is lent for a measurement has no packages. The variable keeps the folder.
function(fp4pa_bare_header target header variable)
  if(TARGET ${target})
    return()
  endif()
  find_path(${variable} "${header}")
  mark_as_advanced(${variable})
  if(${variable})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} INTERFACE "${${variable}}")
  endif()
endfunction()
