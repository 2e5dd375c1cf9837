// The threads of a block on the host, one at a time: each runs until it waits for its warp or its block, then the next does.
#pragma once

#include <functional>

namespace fp4pa::kernels_test {

/// In which order the threads of a block take their turns.
enum class Turn { kForwards, kBackwards };

/// Calls f() as every thread of a block. A thread that ends is waited for no more.
void run_block(int threads, int warp_size, Turn turn, const std::function<void()>& f);

/// For the thread that is running.
[[nodiscard]] int thread_id();
void sync_warp();
void sync_block();

}  // namespace fp4pa::kernels_test
