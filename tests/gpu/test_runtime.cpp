// What only a device can get wrong: graphs that replay with other lengths, streams and threads side by side, page ids past
// 16 bits in pools past 4 GiB, and results that must not depend on what memory held or on the rest of the batch.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/cache/pool.hpp"
#include "tests/gpu/on_device.hpp"
#if !defined(FP4PA_TEST_HIP)
#include "tests/gpu/graph.hpp"
#endif

namespace {

using namespace fp4pa;
using gpu_test::bytes_of;
using gpu_test::kBound;
using gpu_test::kMaxBatches;
using gpu_test::must;
using gpu_test::OnDevice;
using gpu_test::spec_of;
using gpu_test::Stream;

#if !defined(FP4PA_TEST_HIP)  // of HIP no graphs are asked
struct Captured : gpu_test::Captured {
  explicit Captured(OnDevice& d) : gpu_test::Captured([&](Stream stream) { return d.run(stream); }) {}
};
#endif

}  // namespace

#if !defined(FP4PA_TEST_HIP)
TEST_CASE("a captured graph replays with other lengths") {
  for (const int plan : {0, 1, 2, 3, 4, 5}) {
    const std::int32_t max_batch = kMaxBatches[plan / 2];
    const std::int32_t window = plan % 2 * 64;
    CAPTURE(max_batch);
    CAPTURE(window);
    scene::Spec spec = spec_of(KvFormat::kMxfp4, {{1, 5000, 0}, {1, 3000, 1}, {1, 129, 2}});
    spec.window = window;
    spec.group_tokens = 64;
    scene::Scene s(spec);
    s.config.max_batch = max_batch;
    OnDevice d(s);
    Captured graph(d);

    // With a recent tier the ring holds only the tokens of the full length.
    const std::vector<std::array<std::int32_t, 3>> lengths =
        window != 0 ? std::vector<std::array<std::int32_t, 3>>{{5000, 3000, 129}}
                    : std::vector<std::array<std::int32_t, 3>>{{5000, 3000, 129}, {1, 3000, 128}, {4999, 0, 1}, {64, 65, 66}};
    for (const auto& now : lengths) {
      for (std::size_t b = 0; b < 3; ++b) s.seq_lens[b] = now[b];
      must(cudaMemcpy(const_cast<std::int32_t*>(d.args.seq_lens), s.seq_lens.data(), 12, cudaMemcpyHostToDevice), "lengths");
      graph.replay();
      d.mirror.bring_home();
      const scene::Scene::Error error = s.error();
      CHECK(error.o <= kBound);
      CHECK(error.lse <= 1e-3);
    }
  }
}
#endif

#if !defined(FP4PA_TEST_HIP)  // of HIP no graphs are asked
TEST_CASE("a captured graph replays with lengths that are close and with such as are not") {
  // Units for which CUDA's workers find their places: an even cut, whole, in rounds or in parts, while lengths are close, else a line.
  constexpr std::int32_t kLong = 4000;
  for (const std::size_t batch : {400, 130, 60}) {
    for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kBf16}) {
      if (batch == 400 && format != KvFormat::kMxfp4) continue;
      CAPTURE(batch);
      CAPTURE(std::string(name_of(format)));
      std::vector<scene::Sequence> sequences;
      for (std::size_t b = 0; b < batch; ++b) sequences.push_back({1, b == 7 ? kLong : 420, b});
      scene::Scene s(spec_of(format, sequences));
      s.config.max_batch = batch == 400 ? 400 : 130;
      OnDevice d(s);
      Captured graph(d);
      for (const std::int32_t longest : {420, kLong, 1}) {
        CAPTURE(longest);
        for (std::size_t b = 0; b < batch; ++b) {
          s.seq_lens[b] = b == 7 ? longest : longest == 1 ? static_cast<std::int32_t>(b % 2) : 420 - static_cast<std::int32_t>(b % 9);
        }
        must(cudaMemcpy(const_cast<std::int32_t*>(d.args.seq_lens), s.seq_lens.data(), 4 * batch, cudaMemcpyHostToDevice), "lengths");
        std::vector<std::uint8_t> first;
        for (const int fill : {0xff, 0x00}) {
          must(cudaMemset(d.args.workspace, fill, d.choice.workspace_bytes), "filling the workspace");
          must(cudaMemset(d.args.o, 0xff, static_cast<std::size_t>(s.o_bytes)), "clearing the output");
          graph.replay();
          d.mirror.bring_home();
          if (first.empty()) first = bytes_of(s);
          CHECK(bytes_of(s) == first);
        }
        const scene::Scene::Error error = s.error();
        CHECK(error.o <= kBound);
        CHECK(error.lse <= 1e-3);
      }
    }
  }
}
#endif

TEST_CASE("the same call gives the same bits, whatever the workspace held") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16, KvFormat::kF16}) {
    for (const std::int32_t max_batch : kMaxBatches) {
      CAPTURE(std::string(name_of(format)));
      CAPTURE(max_batch);
      // Three query tokens are more rows than some formats' units have.
      scene::Scene s(spec_of(format, {{1, 4100, 0}, {max_batch == kMaxBatches[0] ? 2 : 3, 777, 1}, {1, 64, 2}}));
      s.config.max_batch = max_batch;
      OnDevice d(s);
      std::vector<std::uint8_t> first;
      for (const int fill : {0xff, 0x00, 0x7f}) {
        must(RUNTIME(Memset)(d.args.workspace, fill, d.choice.workspace_bytes), "filling the workspace");
        REQUIRE(d.run(nullptr) == Status::kOk);
        d.mirror.bring_home();
        if (first.empty()) first = bytes_of(s);
        CHECK(bytes_of(s) == first);
      }
      CHECK(s.error().o <= kBound);
    }
  }
}

TEST_CASE("calls of the same lengths use the schedule of the call before") {
  for (const std::int32_t max_batch : kMaxBatches) {
    for (const bool invariant : {false, true}) {
      CAPTURE(max_batch);
      CAPTURE(invariant);
      scene::Scene s(spec_of(KvFormat::kMxfp4, {{1, 4100, 0}, {1, 777, 1}, {1, 64, 2}}));
      s.config.max_batch = max_batch;
      s.config.batch_invariant = invariant;
      OnDevice d(s);
      REQUIRE(d.run(nullptr) == Status::kOk);
      d.mirror.bring_home();
      const std::vector<std::uint8_t> first = bytes_of(s);
      CHECK(s.error().o <= kBound);
      d.args.same_lengths = true;
      for (int layer = 0; layer < 3; ++layer) {
        must(RUNTIME(Memset)(d.args.o, 0xff, static_cast<std::size_t>(s.o_bytes)), "clearing the output");
        REQUIRE(d.run(nullptr) == Status::kOk);
        d.mirror.bring_home();
        CHECK(bytes_of(s) == first);
      }
    }
  }
}

TEST_CASE("a layer with another cache uses the schedule of the layer before") {
  for (const std::int32_t max_batch : kMaxBatches) {
    CAPTURE(max_batch);
    scene::Scene first(spec_of(KvFormat::kFp8E4m3, {{1, 4100, 0}, {1, 777, 1}, {1, 64, 2}}));
    scene::Scene second(spec_of(KvFormat::kFp8E4m3, {{1, 4100, 3}, {1, 777, 4}, {1, 64, 5}}));
    first.config.max_batch = second.config.max_batch = max_batch;
    second.config.cache.k.global_scale = 0.5f;
    OnDevice a(first), b(second);
    REQUIRE(b.run(nullptr) == Status::kOk);
    b.mirror.bring_home();
    const std::vector<std::uint8_t> expected = bytes_of(second);
    REQUIRE(a.run(nullptr) == Status::kOk);
    void* const own = std::exchange(b.args.workspace, a.args.workspace);
    b.args.same_lengths = true;
    b.clear_output();
    REQUIRE(b.run(nullptr) == Status::kOk);
    b.args.workspace = own;
    b.mirror.bring_home();
    CHECK(bytes_of(second) == expected);
  }
}

#if !defined(FP4PA_TEST_HIP)  // of HIP no graphs are asked
TEST_CASE("a call of the same lengths has no kernel for the schedule") {
  scene::Scene s(spec_of(KvFormat::kMxfp4, {{1, 4100, 0}, {1, 777, 1}}));
  s.config.max_batch = kMaxBatches[2];
  OnDevice d(s);
  const auto kernels = [&](bool same_lengths) {
    d.args.same_lengths = same_lengths;
    return Captured(d).nodes();
  };
  CHECK(kernels(false) == 3);
  CHECK(kernels(true) == 2);
}
#endif

TEST_CASE("splits that cut nothing leave units whole, whatever the lengths") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16}) {
    for (const std::int32_t max_batch : {4, 300}) {
      CAPTURE(std::string(name_of(format)));
      CAPTURE(max_batch);
      scene::Scene s(spec_of(format, {{1, 4100, 0}, {2, 777, 1}, {1, 1, 2}, {0, 64, 3}}));
      s.config.max_batch = max_batch;
      s.config.kv_split_tokens = 8192;
      OnDevice d(s);
      must(RUNTIME(Memset)(d.args.workspace, 0xff, d.choice.workspace_bytes), "filling the workspace");
      REQUIRE(d.run(nullptr) == Status::kOk);
      d.mirror.bring_home();
      CHECK(s.error().o <= kBound);
#if !defined(FP4PA_TEST_HIP)
      CHECK(Captured(d).nodes() == 1);
#endif
    }
  }
}

TEST_CASE("batch_invariant: a sequence alone and in a batch") {
  const auto check = [](std::int32_t max_kv_len, const std::vector<scene::Sequence>& batch) {
    CAPTURE(max_kv_len);
    const auto invariant = [&](scene::Spec spec) {
      auto s = std::make_unique<scene::Scene>(spec);
      s->config.batch_invariant = true;
      s->config.max_q_len = 4;  // the plan's, not the call's: it chooses the kernel
      s->config.max_kv_len = max_kv_len;
      OnDevice d(*s);
      REQUIRE(d.run(nullptr) == Status::kOk);
      d.mirror.bring_home();
      return s;
    };
    const auto together = invariant(spec_of(KvFormat::kMxfp4, batch));
    for (std::size_t b = 0; b < batch.size(); ++b) {
      CAPTURE(b);
      const auto alone = invariant(spec_of(KvFormat::kMxfp4, {batch[b]}));
      CHECK(together->bits_of(static_cast<std::int32_t>(b)) == alone->bits_of(0));
    }
  };
  check(9000, {{1, 9000, 0}, {2, 300, 1}, {1, 2048, 2}, {4, 2049, 3}});
  check(2048, {{1, 2048, 0}, {2, 300, 1}, {4, 1025, 2}});  // no unit is cut
}

TEST_CASE("several threads and streams at once") {
  scene::Scene s(spec_of(KvFormat::kNvfp4, {{1, 3000, 0}, {1, 700, 1}}));
  OnDevice d(s);
  constexpr int kThreads = 4;
  const int runs = gpu_test::share() > 1 ? 3 : 20;
  struct Own {
    std::uint8_t* workspace;
    std::uint8_t* o;
    std::vector<std::uint8_t> result;
    Status status;
  };
  std::array<Own, kThreads> own{};
  for (Own& o : own) {
    must(RUNTIME(Malloc)(reinterpret_cast<void**>(&o.workspace), d.choice.workspace_bytes), "a workspace");
    must(RUNTIME(Malloc)(reinterpret_cast<void**>(&o.o), static_cast<std::size_t>(s.o_bytes)), "an output");
    o.result.resize(static_cast<std::size_t>(s.o_bytes));
  }
  std::vector<std::thread> threads;
  for (Own& o : own) {
    threads.emplace_back([&] {
      Stream stream;
      must(gpu_test::create_stream(&stream), "a stream");
      AttentionArgs args = d.args;
      args.workspace = o.workspace;
      args.o = o.o;
      args.lse = nullptr;
      args.stream = stream;
      o.status = Status::kOk;
      for (int i = 0; i < runs && o.status == Status::kOk; ++i) o.status = gpu_test::kBackend.run({d.config, d.choice, args});
      must(RUNTIME(StreamSynchronize)(stream), "the runs");
      must(RUNTIME(Memcpy)(o.result.data(), o.o, o.result.size(), RUNTIME(MemcpyDeviceToHost)), "the result");
      static_cast<void>(RUNTIME(StreamDestroy)(stream));
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Own& o : own) {
    CHECK(o.status == Status::kOk);
    CHECK(o.result == own[0].result);
  }
  std::memcpy(s.o.data(), own[0].result.data(), own[0].result.size());
  REQUIRE(d.run(nullptr) == Status::kOk);  // for the LSE
  d.mirror.bring_home();
  CHECK(std::memcmp(s.o.data(), own[0].result.data(), own[0].result.size()) == 0);
  CHECK(s.error().o <= kBound);
  for (Own& o : own) {
    static_cast<void>(RUNTIME(Free)(o.workspace));
    static_cast<void>(RUNTIME(Free)(o.o));
  }
}

TEST_CASE("page ids past 65535 in a pool past 4 GiB") {
  if (gpu_test::share() > 1) {  // nine gigabytes are more than a simulator, or who asks for a share of the tests, wants to give
    MESSAGE("not run: FP4PA_TEST_SHARE is " << gpu_test::share());
    return;
  }
  scene::Spec spec = spec_of(KvFormat::kMxfp4, {{1, 1000, 0}, {1, 200, 1}});
  spec.kv_heads = 8;
  scene::Scene s(spec);
  OnDevice small(s);
  REQUIRE(small.run(nullptr) == Status::kOk);
  small.mirror.bring_home();
  const std::vector<std::uint8_t> expected = bytes_of(s);

  // The same pages at ids spread over a large pool of poison.
  constexpr std::int64_t kPages = 140000;
  AttentionConfig config = small.config;
  std::vector<void*> owned;
  const auto enlarge = [&](void*& array, std::int64_t page_stride) -> bool {
    std::uint8_t* large = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(page_stride * kPages);
    if (RUNTIME(Malloc)(reinterpret_cast<void**>(&large), bytes) != RUNTIME(Success)) return false;
    must(RUNTIME(Memset)(large, 0xff, bytes), "poisoning it");
    owned.push_back(large);
    for (std::int64_t page = 0; page < s.config.cache.num_pages; ++page) {
      // Page p moves to the p-th of the last multiples of 7.
      const std::int64_t to = kPages - 1 - 7 * page;
      must(RUNTIME(Memcpy)(large + to * page_stride, static_cast<std::uint8_t*>(array) + page * page_stride,
                      static_cast<std::size_t>(page_stride), RUNTIME(MemcpyDeviceToDevice)),
           "a page");
    }
    array = large;
    return true;
  };
  REQUIRE(config.cache.k.page_stride_bytes * kPages > (std::int64_t{1} << 32));
  for (KvTensorDesc* t : {&config.cache.k, &config.cache.v}) {
    if (!enlarge(t->data, t->page_stride_bytes) || !enlarge(t->scales, t->scale_page_stride_bytes)) {
      MESSAGE("not run: the device has no room for such a pool");
      for (void* p : owned) static_cast<void>(RUNTIME(Free)(p));
      return;
    }
  }
  config.cache.num_pages = kPages;
  std::vector<std::int32_t> table = s.block_table;
  for (std::int32_t& id : table) {
    if (id >= 0) id = static_cast<std::int32_t>(kPages - 1 - 7 * id);
  }
  must(RUNTIME(Memcpy)(const_cast<std::int32_t*>(small.args.block_table), table.data(), 4 * table.size(),
                       RUNTIME(MemcpyHostToDevice)),
       "the table");
  must(RUNTIME(Memset)(small.args.o, 0, static_cast<std::size_t>(s.o_bytes)), "clearing O");
  REQUIRE(gpu_test::kBackend.run({config, small.choice, small.args}) == Status::kOk);
  small.mirror.bring_home();
  CHECK(bytes_of(s) == expected);
  for (void* p : owned) static_cast<void>(RUNTIME(Free)(p));
}

TEST_CASE("a plan of another kind of device is refused") {
  scene::Scene s(spec_of(KvFormat::kMxfp4, {{1, 1000, 0}}));
  OnDevice d(s);
  CHECK(gpu_test::kBackend.run({d.config, d.choice, d.args}) == Status::kOk);
  for (std::int32_t api::PlannedDevice::*const field :
       {&api::PlannedDevice::architecture, &api::PlannedDevice::multiprocessors, &api::PlannedDevice::shared_bytes}) {
    api::PlanChoice other = d.choice;
    ++(other.device.*field);
    CHECK_REFUSED(gpu_test::kBackend.run({d.config, other, d.args}), Status::kPlanMismatch, "the current device has", "the plan is for");
  }
}

TEST_CASE("validation on the device names what is wrong") {
  scene::Scene s(spec_of(KvFormat::kMxfp4, {{1, 1000, 0}, {1, 200, 1}}));
  s.config.validate_device_data = true;
  s.block_table[1] = 1 << 20;
  {
    OnDevice d(s);
    CHECK_REFUSED(d.run(nullptr), Status::kBlockIdOutOfRange, "sequence 0", "1048576");
  }
  s.block_table[1] = 0;
  s.seq_lens[1] = 100000;
  OnDevice d(s);
  CHECK_REFUSED(d.run(nullptr), Status::kPlanMismatch, "seq_lens[1] is 100000", "max_kv_len");
}

TEST_CASE("validation of slots on the device names what is wrong, and nothing is written") {
  ::test::Shape shape;
  shape.axis = VScaleAxis::kTokens;
  shape.page_size = 32;
  shape.num_pages = 3;
  ::test::Random random(6);
  const ::test::Rows rows(DType::kBF16, 2, shape.heads, shape.head_dim, random);
  ::test::Pool pool(shape);
  const auto before = pool.snapshot();
  ExecDesc exec;
  exec.backend = gpu_test::kBackendName;
  exec.validate_device_data = true;
  const auto appended = [&](std::int32_t a, std::int32_t b) {
    const std::int32_t slots[] = {a, b};
    return append(pool.cache, rows.input(), rows.input(), slots, IndexType::kInt32, 2, exec);
  };
  CHECK_REFUSED(appended(32, 96), Status::kSlotOutOfRange, "token 1 has slot 96", "0 to 95");
  CHECK_REFUSED(appended(33, 34), Status::kIncompleteGroup, "token 0 (slot 33) is row 1");
  CHECK(pool.snapshot() == before);
  CHECK(appended(32, 33) == Status::kOk);
  CHECK(pool.snapshot() != before);
}

TEST_CASE("validation of tables on the device names what is wrong, and nothing is written") {
  ::test::Shape shape;
  shape.num_pages = 3;
  ::test::Random random(6);
  const ::test::Rows rows(DType::kBF16, 40, shape.heads, shape.head_dim, random);
  ::test::Pool pool(shape);
  ::test::Shape plain = shape;
  plain.k_format = plain.v_format = KvFormat::kBf16;
  ::test::Pool recent(plain);
  const auto before = pool.snapshot();
  const auto recent_before = recent.snapshot();
  ExecDesc exec;
  exec.backend = gpu_test::kBackendName;
  exec.validate_device_data = true;
  const std::int32_t src[] = {0, 1}, dst[] = {2, 3};
  CHECK_REFUSED(copy_pages(pool.cache, src, dst, 2, exec), Status::kBlockIdOutOfRange, "dst[1] = 3", "0 to 2");
  const TwoTierDesc desc{pool.cache, recent.cache, 16, 1, 2};
  const std::int32_t indptr[] = {0, 40}, seq_lens[] = {0}, old_table[] = {0, 5}, recent_table[] = {0, 1};
  CHECK_REFUSED(append_two_tier(desc, rows.input(), rows.input(), indptr, seq_lens, 1, 40, old_table, 2, recent_table, exec),
                Status::kBlockIdOutOfRange, "old_table of sequence 0 has page id 5 at entry 1", "0 to 2");
  CHECK(pool.snapshot() == before);
  CHECK(recent.snapshot() == recent_before);
}

TEST_CASE("merge_states agrees with the CPU") {
  constexpr std::int64_t kRows = 37;
  constexpr std::int32_t kDim = 96;
  ::test::Random random(5);
  std::vector<float> oa(kRows * kDim), ob(kRows * kDim), lse_a(kRows), lse_b(kRows), o(kRows * kDim), lse(kRows), o2 = o,
                                                                                                        lse2 = lse;
  for (float& x : oa) x = random.value();
  for (float& x : ob) x = random.value();
  for (float& x : lse_a) x = static_cast<float>(40.0 * random.uniform() - 20.0);
  for (float& x : lse_b) x = static_cast<float>(40.0 * random.uniform() - 20.0);
  lse_a[3] = lse_b[5] = lse_a[7] = lse_b[7] = -INFINITY;
  ExecDesc exec;
  exec.backend = "cpu";
  REQUIRE(merge_states(oa.data(), lse_a.data(), ob.data(), lse_b.data(), o.data(), lse.data(), DType::kF32, kRows, kDim, exec) ==
          Status::kOk);
  exec.backend = gpu_test::kBackendName;
  REQUIRE(merge_states(oa.data(), lse_a.data(), ob.data(), lse_b.data(), o2.data(), lse2.data(), DType::kF32, kRows, kDim,
                       exec) == Status::kOk);
  for (std::size_t i = 0; i < o.size(); ++i) CHECK(o2[i] == doctest::Approx(o[i]).epsilon(1e-5));
  for (std::size_t i = 0; i < lse.size(); ++i) CHECK((lse2[i] == lse[i] || std::abs(lse2[i] - lse[i]) < 1e-5f));
}
