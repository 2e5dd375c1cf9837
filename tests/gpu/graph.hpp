// Calls captured in a CUDA graph.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>

#include "fp4pa/status.hpp"
#include "tests/gpu/mirror.hpp"

namespace fp4pa::gpu_test {

class Captured {
 public:
  /// @param enqueue  (stream) -> Status makes the calls
  template <class Enqueue>
  explicit Captured(Enqueue&& enqueue) {
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "beginning a capture");
    const Status captured = enqueue(stream_);
    must(cudaStreamEndCapture(stream_, &graph_), "ending a capture");
    REQUIRE(captured == Status::kOk);
    must(cudaGraphInstantiate(&exec_, graph_, 0), "instantiating a graph");
  }
  ~Captured() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  /// After all that was asked of the device before, and waits for it.
  void replay() {
    must(cudaDeviceSynchronize(), "what comes before a replay");
    must(cudaGraphLaunch(exec_, stream_), "launching a graph");
    must(cudaStreamSynchronize(stream_), "a replay");
  }
  [[nodiscard]] std::size_t nodes() const {
    std::size_t count = 0;
    must(cudaGraphGetNodes(graph_, nullptr, &count), "counting nodes");
    return count;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace fp4pa::gpu_test
