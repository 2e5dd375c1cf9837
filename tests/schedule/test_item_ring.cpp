// sm_90's ring of items, with threads as the warps of a block and the arrival barriers written out: every warp is given every
// item of its worker, in order, and keeps reading what was published until it has given the slot back.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "backends/sm90/items.hpp"
#include "tests/schedule/random_work.hpp"

using namespace schedule;
using namespace fp4pa::sm90;

namespace {

/// The mbarriers of a block: a phase ends with the last of its arrivals, and waiting for a parity is waiting for the end of a
/// phase of that parity.
class Barriers {
 public:
  void set_up(std::uint32_t at, int count) { all_[at] = {count, count, 0}; }
  void arrive(std::uint32_t at) {
    const std::lock_guard lock(mutex_);
    Barrier& b = all_.at(at);
    if (--b.pending > 0) return;
    b.pending = b.count;
    b.phase ^= 1;
    changed_.notify_all();
  }
  void wait(std::uint32_t at, std::uint32_t parity) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return all_.at(at).phase != parity; });
  }

 private:
  struct Barrier {
    int count, pending;
    std::uint32_t phase;
  };
  std::map<std::uint32_t, Barrier> all_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// As much of an Exec as the ring asks for.
struct WarpThread {
  struct Lane {
    int id;
  };
  Barriers* barriers;
  void set_up_arrivals(std::uint32_t at, int count) const { barriers->set_up(at, count); }
  void arrive(std::uint32_t at) const { barriers->arrive(at); }
  void wait_for_arrivals(std::uint32_t at, std::uint32_t parity) const { barriers->wait(at, parity); }
  void warp_barrier() const {}
  template <class F>
  void each_lane(F&& f) const {
    f(Lane{0});
  }
};

auto fields(const WorkItem& i) { return std::tuple(i.seq, i.block, i.kv_head, i.tiles.begin, i.tiles.end, i.partial_slot); }

}  // namespace

TEST_CASE("the ring of items gives every warp all items of the worker") {
  constexpr int kWarps = 3;
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Work w = draw(seed);
    const WorkList list = w.list();
    AttentionParams params{};
    params.group_heads = w.group_heads;
    params.group_divisor = Divisor::of(static_cast<std::uint32_t>(w.group_heads));
    params.qo_indptr = w.qo_indptr.data();
    params.seq_lens = w.kv_lens.data();
    params.partition = list.partition;
    std::vector<WorkerStart> starts;
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) starts.push_back(worker_start(list, worker));
    WorkList with_starts = list;
    with_starts.partition.starts = starts.data();
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      std::vector<WorkItem> want;
      for_each_item(list, worker, [&](const WorkItem& item) { want.push_back(item); });
      most = std::max(most, want.size());

      alignas(16) std::uint8_t shared[kItemBytes] = {};
      Barriers barriers;
      const WarpThread exec{&barriers};
      const ItemRing ring(shared, 0);
      ring.set_up(exec, kWarps);
      ring.start(with_starts, worker);
      for (ItemPlace at; at.steps < kItemsAhead; ++at.steps) ring.publish(exec, at, with_starts, params);

      std::vector<WorkItem> got[kWarps];
      int wrong[kWarps] = {};
      std::vector<std::thread> warps;
      for (int warp = 0; warp < kWarps; ++warp) {
        warps.emplace_back([&, warp] {
          ring.for_each(exec, [&](const PublishedItem& it, ItemPlace at) {
            const WorkItem item = it.item;
            got[warp].push_back(item);
            if (warp == 0) ring.publish(exec, {at.steps + kItemsAhead}, with_starts, params);
            if (warp + 1 == kWarps) std::this_thread::sleep_for(std::chrono::microseconds(20));  // it falls behind
            const RowMap rows(params, item);
            wrong[warp] += fields(it.item) != fields(item);
            wrong[warp] += it.rows.num_rows != rows.num_rows || it.rows.first_row != rows.first_row;
          });
        });
      }
      for (std::thread& t : warps) t.join();
      INFO("seed ", seed, " worker ", worker);
      for (int warp = 0; warp < kWarps; ++warp) {
        CHECK(wrong[warp] == 0);
        REQUIRE(got[warp].size() == want.size());
        for (std::size_t i = 0; i < want.size(); ++i) CHECK(fields(got[warp][i]) == fields(want[i]));
      }
    }
  }
  CHECK(most > 8);  // slots are used again
}
