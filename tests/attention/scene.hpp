// A call with memory of its own behind it: caches, tables, queries and outputs of a few sequences, valid as it stands,
// for tests that change one thing at a time.
//
// What a sequence holds - its keys, values and queries - follows from its number alone and not from the rest of the
// scene, so that the same sequence can be met alone and inside a batch, on other pages. Every byte that belongs to no
// token is poison, entries of tables beyond a sequence's pages name no page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/attention/grid_pool.hpp"

namespace scene {

struct Sequence {
  std::int32_t q_len = 1;
  std::int32_t kv_len = 1;
  std::uint64_t number = 0;  ///< decides what it holds
};

struct Spec {
  fp4pa::KvFormat k = fp4pa::KvFormat::kMxfp4, v = fp4pa::KvFormat::kMxfp4;
  fp4pa::VScaleAxis v_axis = fp4pa::VScaleAxis::kHeadDim;
  std::int32_t head_dim = 64, kv_heads = 2, group_heads = 2, page_size = 16;
  fp4pa::DType q_dtype = fp4pa::DType::kF32, o_dtype = fp4pa::DType::kF32;
  fp4pa::TableKind table = fp4pa::TableKind::kBlockTable;
  std::int32_t window = 0, group_tokens = 32, recent_page_size = 16;  ///< window 0: one tier
  fp4pa::KvFormat recent = fp4pa::KvFormat::kBf16;
  std::vector<Sequence> sequences{{1, 40, 0}};
  std::uint64_t seed = 1;      ///< of the page ids
  std::uint8_t poison = 0xFF;  ///< NaN in every format that has one
};

/// The byte that outputs hold before a run.
inline constexpr std::uint8_t kUnwritten = 0x5A;

class Scene {
 public:
  explicit Scene(const Spec& spec);
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  /// Plans and runs with `config` and `args` as they are; allocates the workspace if args has none.
  fp4pa::Status run();
  /// Outputs as before the first run.
  void reset_outputs();
  [[nodiscard]] bool outputs_untouched();

  [[nodiscard]] std::int32_t q_heads() const { return config.num_q_heads; }
  [[nodiscard]] std::int32_t q_tokens() const { return indptr.back(); }
  /// Elements of O of a (token, head) row, and its LSE.
  [[nodiscard]] std::vector<double> o_row(std::int32_t token, std::int32_t head);
  [[nodiscard]] float lse_of(std::int32_t token, std::int32_t head) const;
  /// All bytes of O and of LSE of one sequence, rows in order; dense O only.
  [[nodiscard]] std::vector<std::uint8_t> bits_of(std::int32_t sequence);
  /// Worst relative Frobenius error over the rows' whole, and worst LSE error, against the double-precision reference.
  struct Error {
    double o, lse;
  };
  [[nodiscard]] Error error();

  /// Where a token's codes and scales lie. `value`: of V, else of K.
  [[nodiscard]] std::uint8_t* codes(bool value, std::int32_t sequence, std::int32_t token, std::int32_t head);
  [[nodiscard]] std::uint8_t* scales(bool value, std::int32_t sequence, std::int32_t token, std::int32_t head);
  /// Gives every scale of K or V a byte from [low, high].
  void fill_scales(bool value, int low, int high, std::uint64_t seed);

  Spec spec;
  fp4pa::AttentionConfig config;
  fp4pa::AttentionArgs args;
  std::vector<std::int32_t> indptr{0}, seq_lens, block_table, kv_indptr{0}, kv_indices, recent_table;
  std::vector<float> lse, sinks, slopes;
  std::vector<std::uint64_t> tree;
  grid::Memory q, o, workspace;
  std::int64_t o_bytes = 0;
  grid::Pool old_pool, recent_pool;

 private:
  void build_pools();
  void build_tables();
  void write_tokens();
  void build_queries();
};

/// Whether the last failure's sentence has every piece; for INFO, the sentence itself is last_error_detail().
[[nodiscard]] bool detail_has(std::initializer_list<const char*> pieces);

}  // namespace scene

/// run() of a scene, or any call, must be refused with this status and a sentence that has these pieces.
#define CHECK_REFUSED(call, status, ...)                                                                \
  do {                                                                                                  \
    const ::fp4pa::Status refused_ = (call);                                                            \
    INFO(std::string(::fp4pa::status_name(refused_)), ": ", std::string(::fp4pa::last_error_detail())); \
    CHECK(refused_ == (status));                                                                        \
    CHECK(::scene::detail_has({__VA_ARGS__}));                                                          \
  } while (false)
