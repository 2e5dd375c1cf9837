// A CUDA device: what CUDA and HIP share is in device_gpu.inc; graphs are CUDA's alone.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <vector>

#include "perf/gpu_bandwidth.hpp"
#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/device_gpu.hpp"
#include "tools/fp4pa/exit_codes.hpp"

#define RUNTIME(name) cuda##name
#define RUNTIME_PROPERTIES cudaDeviceProp

namespace fp4pa::tool {
namespace {

#include "tools/fp4pa/device_gpu.inc"

/// A stream to record on: the default one cannot be.
class RecordingStream {
 public:
  RecordingStream() { must(cudaStreamCreate(&stream_), "creating a stream"); }
  RecordingStream(const RecordingStream&) = delete;
  RecordingStream& operator=(const RecordingStream&) = delete;
  ~RecordingStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  /// The graph of what `work` enqueues. A failure of `work` leaves nothing being recorded.
  [[nodiscard]] cudaGraph_t record(const std::function<void(void*)>& work) {
    cudaGraph_t graph = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a graph");
    try {
      work(stream_);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_, &graph));
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      throw;
    }
    must(cudaStreamEndCapture(stream_, &graph), "recording a graph");
    return graph;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaDevice final : public GpuDevice {
 public:
  bool has_graphs() const override { return true; }
  std::function<void()> recorded(const std::function<void(void*)>& work) override {
    work(nullptr);  // kernels are loaded at their first launch, which is not to be recorded
    must(cudaDeviceSynchronize(), "running what is to be recorded");
    RecordingStream stream;
    const cudaGraph_t graph = stream.record(work);
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    must(error, "instantiating a graph");
    const std::shared_ptr<CUgraphExec_st> owner(executable,
                                                [](cudaGraphExec_t g) { static_cast<void>(cudaGraphExecDestroy(g)); });
    return [owner] { must(cudaGraphLaunch(owner.get(), nullptr), "launching a graph"); };
  }
};

}  // namespace

std::unique_ptr<Device> make_cuda_device() { return std::make_unique<CudaDevice>(); }

}  // namespace fp4pa::tool
