// The sm_80 body on host_exec.hpp as a back end of the library: the CUDA back end's instances without CUDA.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::api {
extern const Backend kLanesBackend;
}
