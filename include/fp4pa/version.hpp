// Version of the library and of its ABI. CMakeLists.txt reads these four lines.
#pragma once

#define FP4PA_VERSION_MAJOR 0
#define FP4PA_VERSION_MINOR 1
#define FP4PA_VERSION_PATCH 0
/// Raised whenever a published C++ struct, an enum value or a function signature changes, or a C struct other than by fields at its end.
#define FP4PA_ABI_VERSION 1
