// Everything in one include.
#pragma once

#include "fp4pa/attention.hpp"
#include "fp4pa/backends.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/dense_attention.hpp"
#include "fp4pa/gemm.hpp"
#include "fp4pa/quantize.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"
#include "fp4pa/version.hpp"
