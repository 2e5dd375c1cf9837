# What the emulator's tests need beside their own sources: the grid of configurations, and tests of the CUDA back end that its
# instances pass on the emulator too. Included by tests/CMakeLists.txt after
# fp4pa_test_area(emulator ...).
if(TARGET fp4pa_test_emulator)
  target_sources(fp4pa_test_emulator PRIVATE
    attention/grid_case.cpp attention/grid_pool.cpp attention/grid_run.cpp attention/scene.cpp
    gpu/test_convert.cpp gpu/test_scales.cpp gpu/test_tree_windows.cpp dense/test_dense.cpp dense/test_mxfp8.cpp dense/test_mxfp8_errors.cpp
    dense/test_smoothing.cpp)
  # The dense tests find the GPU's target before their own.
  target_include_directories(fp4pa_test_emulator BEFORE PRIVATE "${CMAKE_CURRENT_LIST_DIR}/../gpu/overlay")
  target_compile_definitions(fp4pa_test_emulator PRIVATE $<$<BOOL:${FP4PA_LONG_TESTS}>:FP4PA_LONG_TESTS>)
  # g++ 12 takes a lane number that a loop bounds by 32 for one that may be 64.
  target_compile_options(fp4pa_test_emulator PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
  # Kernels, a hundred and more of them, are compiled in half the time of -O1; what they spend most of their own on is compiled apart.
  set_source_files_properties(emulator/sm80.cpp emulator/sm90.cpp emulator/sm120.cpp emulator/sm120_terms.cpp emulator/gfx942.cpp
    emulator/gfx950.cpp emulator/test_mutations.cpp emulator/test_mutations_gfx950.cpp emulator/test_mutations_sm120.cpp
    PROPERTIES COMPILE_OPTIONS $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Og>)
  # Warps take turns, so that a process keeps one processor busy: three processes, which run side by side.
  foreach(architecture sm_80 sm_90a)
    add_test(NAME emulator.${architecture} COMMAND fp4pa_test_emulator "--test-case=${architecture}:*")
    set_tests_properties(emulator.${architecture} PROPERTIES LABELS emulator)
    fp4pa_expect_cases(emulator.${architecture})
  endforeach()
  # They take the longest, and start first.
  set_tests_properties(emulator emulator.sm_80 emulator.sm_90a PROPERTIES TIMEOUT 1500 COST 100)
endif()
