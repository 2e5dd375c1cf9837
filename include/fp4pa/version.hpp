// Version of the library and of its ABI. CMakeLists.txt reads these four lines.
#pragma once

#define FP4PA_VERSION_MAJOR 0
#define FP4PA_VERSION_MINOR 1
#define FP4PA_VERSION_PATCH 0
/// Raised whenever a published struct, enum value or function signature changes.
#define FP4PA_ABI_VERSION 1
