// The grid of test_grid.cpp on the host, lane by lane: no GPU, the same instances.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
