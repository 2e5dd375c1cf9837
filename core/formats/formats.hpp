// Everything in core/formats, under one include.
#pragma once

#include "core/formats/block.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/hadamard.hpp"
#include "core/formats/half.hpp"
#include "core/formats/pack.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/formats/scale_mode.hpp"
