// The C constants equal the C++ enumerators; this file compiles to nothing and fails to when they do not.
#include <cstdint>

#include "fp4pa/fp4pa.h"
#include "fp4pa/fp4pa.hpp"

namespace fp4pa {
namespace {

template <typename Enum>
constexpr bool same(std::int32_t c, Enum cpp) {
  return c == static_cast<std::int32_t>(cpp);
}

static_assert(same(FP4PA_OK, Status::kOk));
static_assert(same(FP4PA_NULL_POINTER, Status::kNullPointer));
static_assert(same(FP4PA_MISALIGNED_POINTER, Status::kMisalignedPointer));
static_assert(same(FP4PA_INVALID_SIZE, Status::kInvalidSize));
static_assert(same(FP4PA_UNSUPPORTED_HEAD_DIM, Status::kUnsupportedHeadDim));
static_assert(same(FP4PA_INVALID_HEADS, Status::kInvalidHeads));
static_assert(same(FP4PA_UNSUPPORTED_FORMAT, Status::kUnsupportedFormat));
static_assert(same(FP4PA_INVALID_STRIDES, Status::kInvalidStrides));
static_assert(same(FP4PA_INVALID_GLOBAL_SCALE, Status::kInvalidGlobalScale));
static_assert(same(FP4PA_LENGTH_EXCEEDS_TABLE, Status::kLengthExceedsTable));
static_assert(same(FP4PA_BLOCK_ID_OUT_OF_RANGE, Status::kBlockIdOutOfRange));
static_assert(same(FP4PA_SLOT_OUT_OF_RANGE, Status::kSlotOutOfRange));
static_assert(same(FP4PA_INCOMPLETE_GROUP, Status::kIncompleteGroup));
static_assert(same(FP4PA_INVALID_INDPTR, Status::kInvalidIndptr));
static_assert(same(FP4PA_WORKSPACE_TOO_SMALL, Status::kWorkspaceTooSmall));
static_assert(same(FP4PA_UNKNOWN_BACKEND, Status::kUnknownBackend));
static_assert(same(FP4PA_BACKEND_UNAVAILABLE, Status::kBackendUnavailable));
static_assert(same(FP4PA_INVALID_ARGUMENT, Status::kInvalidArgument));
static_assert(same(FP4PA_PLAN_MISMATCH, Status::kPlanMismatch));
static_assert(same(FP4PA_DEVICE_ERROR, Status::kDeviceError));
static_assert(same(FP4PA_INTERNAL, Status::kInternal));
static_assert(same(FP4PA_FILE_ERROR, Status::kFileError));

static_assert(same(FP4PA_F32, DType::kF32));
static_assert(same(FP4PA_F16, DType::kF16));
static_assert(same(FP4PA_BF16, DType::kBF16));

static_assert(same(FP4PA_KV_MXFP4, KvFormat::kMxfp4));
static_assert(same(FP4PA_KV_NVFP4, KvFormat::kNvfp4));
static_assert(same(FP4PA_KV_E8M0_PER_TOKEN, KvFormat::kE8m0PerToken));
static_assert(same(FP4PA_KV_FP8_E4M3, KvFormat::kFp8E4m3));
static_assert(same(FP4PA_KV_BF16, KvFormat::kBf16));
static_assert(same(FP4PA_KV_F16, KvFormat::kF16));
static_assert(same(FP4PA_KV_MXFP8, KvFormat::kMxfp8));

static_assert(same(FP4PA_SCALE_AXIS_HEAD_DIM, VScaleAxis::kHeadDim));
static_assert(same(FP4PA_SCALE_AXIS_TOKENS, VScaleAxis::kTokens));

static_assert(same(FP4PA_MATRIX_AUTO, MatrixPath::kAuto));
static_assert(same(FP4PA_MATRIX_NATIVE, MatrixPath::kNative));
static_assert(same(FP4PA_MATRIX_DECODE, MatrixPath::kDecode));

static_assert(same(FP4PA_SCALE_FLOOR, ScaleMode::kFloor));
static_assert(same(FP4PA_SCALE_CEIL, ScaleMode::kCeil));
static_assert(same(FP4PA_SCALE_RCEIL, ScaleMode::kRceil));
static_assert(same(FP4PA_SCALE_EVEN, ScaleMode::kEven));

static_assert(same(FP4PA_NVFP4_AMAX_OVER_6, Nvfp4Scale::kAmaxOver6));
static_assert(same(FP4PA_NVFP4_FOUR_OVER_SIX, Nvfp4Scale::kFourOverSix));

static_assert(same(FP4PA_NIBBLE_EVEN_LOW, NibbleOrder::kEvenLow));
static_assert(same(FP4PA_NIBBLE_SPLIT_HALF, NibbleOrder::kSplitHalf));

static_assert(same(FP4PA_SWIZZLE_LINEAR, ScaleSwizzle::kLinear));
static_assert(same(FP4PA_SWIZZLE_FOUR_TOKENS, ScaleSwizzle::kFourTokens));

static_assert(same(FP4PA_ROTATION_NONE, Rotation::kNone));
static_assert(same(FP4PA_ROTATION_HADAMARD16, Rotation::kHadamard16));
static_assert(same(FP4PA_ROTATION_HADAMARD32, Rotation::kHadamard32));
static_assert(same(FP4PA_ROTATION_HADAMARD64, Rotation::kHadamard64));
static_assert(same(FP4PA_ROTATION_HADAMARD128, Rotation::kHadamard128));

static_assert(same(FP4PA_INT32, IndexType::kInt32));
static_assert(same(FP4PA_INT64, IndexType::kInt64));

static_assert(same(FP4PA_PAGE_HND, PageOrder::kHnd));
static_assert(same(FP4PA_PAGE_NHD, PageOrder::kNhd));

static_assert(same(FP4PA_TABLE_BLOCK, TableKind::kBlockTable));
static_assert(same(FP4PA_TABLE_CSR, TableKind::kCsr));

static_assert(same(FP4PA_BLOCK_MXFP4, BlockFormat::kMxfp4));
static_assert(same(FP4PA_BLOCK_NVFP4, BlockFormat::kNvfp4));
static_assert(same(FP4PA_BLOCK_MXFP8, BlockFormat::kMxfp8));

static_assert(same(FP4PA_SCALES_LINEAR, ScaleLayout::kLinear));
static_assert(same(FP4PA_SCALES_BLOCKED, ScaleLayout::kBlocked));

}  // namespace
}  // namespace fp4pa
