# Compiles SOURCE twice: with FP4PA_COMPILE_OK it must succeed, without it must fail with PATTERN in the message.
set(command ${CXX} -std=c++20 -fsyntax-only -Wall -Wextra -Werror "-I${ROOT}" "-I${ROOT}/include" "${SOURCE}")

execute_process(COMMAND ${command} -DFP4PA_COMPILE_OK RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "does not compile even with FP4PA_COMPILE_OK:\n${output}")
endif()
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "compiles, and must not")
endif()
if(NOT output MATCHES "${PATTERN}")
  message(FATAL_ERROR "fails, but the message does not match '${PATTERN}':\n${output}")
endif()
