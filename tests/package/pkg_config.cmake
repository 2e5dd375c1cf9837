# Compiles and runs the C consumer with what pkg-config says, and nothing else.
set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs fp4pa OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
message("pkg-config: ${flags}")
separate_arguments(flags UNIX_COMMAND "${flags} ${FLAGS}")
file(REMOVE_RECURSE "${BUILD}")
file(MAKE_DIRECTORY "${BUILD}")
execute_process(COMMAND ${CC} -std=c99 -pedantic -Wall -Wextra -Werror "${SOURCE}/c/main.c" -o "${BUILD}/consumer" ${flags}
                COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} "${PREFIX}/${LIBDIR}")
execute_process(COMMAND "${BUILD}/consumer" COMMAND_ERROR_IS_FATAL ANY)
