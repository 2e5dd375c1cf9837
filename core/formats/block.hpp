// Block encoders and decoders of all formats, under one include: MX (one E8M0 scale per block) and NVFP4.
#pragma once

#include "core/formats/mx_block.hpp"
#include "core/formats/nvfp4_block.hpp"
