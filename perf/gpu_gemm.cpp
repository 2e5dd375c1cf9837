// The FP4 matrix product on the GPU: time per call, and weight bytes over the read bandwidth measured in the same run.
//
//   fp4pa_gpu_gemm [--shapes MxNxK,...] [--formats mxfp4,nvfp4] [--x f16,bf16] [--forms a16,a4] [--runs 20] [--json FILE]
//
// Calls walk over copies of the weight that together are several times the second-level cache, and say that it is settled, as a
// loaded model's is. A round over the copies is one CUDA graph; the time of a call is the median round divided by its calls.
// perf/gemm_peers.py does the same with cuBLAS.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/formats/half.hpp"
#include "fp4pa/fp4pa.hpp"
#include "perf/gpu_bandwidth.hpp"

namespace {

using namespace fp4pa;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void must(Status status, const char* what) {
  if (status == Status::kOk) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, status_name(status), last_error_detail());
  std::exit(1);
}

std::uint8_t* allocate(std::size_t bytes) {
  void* p = nullptr;
  must(cudaMalloc(&p, std::max<std::size_t>(256, bytes)), "cudaMalloc");
  return static_cast<std::uint8_t*>(p);
}

constexpr std::size_t kAcross = std::size_t{400} << 20;  // bytes that the copies of a weight have together

struct Shape {
  long long m, n, k;
};

struct Options {
  std::vector<Shape> shapes{{1, 8192, 8192}, {4, 8192, 8192}, {16, 8192, 8192}, {64, 8192, 8192}, {256, 2880, 2880}, {2048, 2880, 7680}};
  std::vector<BlockFormat> formats{BlockFormat::kMxfp4, BlockFormat::kNvfp4};
  std::vector<DType> x{DType::kF16, DType::kBF16};
  std::vector<ActivationForm> forms{ActivationForm::k16Bit, ActivationForm::kFp4};
  int runs = 20;
  std::string json;
};

template <class T, std::size_t N>
T named(const std::string& name, const T (&all)[N]) {
  for (const T v : all) {
    if (name == name_of(v)) return v;
  }
  std::fprintf(stderr, "unknown name %s\n", name.c_str());
  std::exit(2);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--shapes") {
      o.shapes.clear();
      for (const std::string& s : split(value)) {
        Shape shape{};
        if (std::sscanf(s.c_str(), "%lldx%lldx%lld", &shape.m, &shape.n, &shape.k) != 3) std::exit(2);
        o.shapes.push_back(shape);
      }
    } else if (key == "--formats") {
      o.formats.clear();
      for (const std::string& s : split(value)) o.formats.push_back(named(s, {BlockFormat::kMxfp4, BlockFormat::kNvfp4}));
    } else if (key == "--x") {
      o.x.clear();
      for (const std::string& s : split(value)) o.x.push_back(named(s, {DType::kF16, DType::kBF16}));
    } else if (key == "--forms") {
      o.forms.clear();
      for (const std::string& s : split(value)) o.forms.push_back(named(s, {ActivationForm::k16Bit, ActivationForm::kFp4}));
    } else if (key == "--runs") {
      o.runs = std::atoi(value.c_str());
    } else if (key == "--json") {
      o.json = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", key.c_str());
      std::exit(2);
    }
  }
  return o;
}

/// Median seconds of `graph`.
double seconds(cudaGraphExec_t graph, cudaStream_t stream, int runs) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> ms;
  for (int r = -3; r < runs; ++r) {
    must(cudaEventRecord(begin, stream), "record");
    must(cudaGraphLaunch(graph, stream), "graph");
    must(cudaEventRecord(end, stream), "record");
    must(cudaEventSynchronize(end), "wait");
    float t = 0;
    must(cudaEventElapsedTime(&t, begin, end), "elapsed");
    if (r >= 0) ms.push_back(t);
  }
  std::nth_element(ms.begin(), ms.begin() + ms.size() / 2, ms.end());
  return 1e-3 * ms[ms.size() / 2];
}

/// `work(i)` for i in [0, count) as one graph; seconds per call.
template <class Work>
double per_call(int count, int runs, cudaStream_t stream, Work&& work) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i) work(i);
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  const double t = seconds(exec, stream, runs) / count;
  must(cudaGraphExecDestroy(exec), "graph");
  must(cudaGraphDestroy(graph), "graph");
  return t;
}

double read_bandwidth(cudaStream_t stream) {
  const std::int64_t bytes = std::int64_t{4} << 30;
  std::uint8_t* const data = allocate(static_cast<std::size_t>(bytes));
  std::uint8_t* const sink = allocate(1 << 20);
  must(cudaMemset(data, 1, static_cast<std::size_t>(bytes)), "memset");
  double best = 0;
  for (const int blocks : {132 * 8, 132 * 16, 132 * 32}) {
    const double t = per_call(1, 5, stream, [&](int) { must(perf::launch_read(data, bytes, sink, blocks, stream), "read"); });
    best = std::max(best, static_cast<double>(bytes) / t);
  }
  cudaFree(data);
  cudaFree(sink);
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  const double bandwidth = read_bandwidth(stream);
  std::printf("read bandwidth %.3f TB/s\n", 1e-12 * bandwidth);
  std::printf("%-6s %-4s %-5s %18s %9s %9s %7s %9s\n", "format", "form", "x", "shape", "us", "GB/s", "of read", "TFLOP/s");
  std::string json = "{\"read_GBps\": " + std::to_string(1e-9 * bandwidth) + ", \"results\": [";
  bool first = true;
  std::mt19937_64 random(1);
  for (const Shape& s : o.shapes) {
    for (const BlockFormat format : o.formats) {
      const std::size_t code_bytes = fp4_weight_code_bytes(format, s.n, s.k);
      const std::size_t scale_bytes = fp4_weight_scale_bytes(format, ScaleLayout::kLinear, s.n, s.k);
      const int copies = static_cast<int>(std::max<std::size_t>(2, (kAcross + code_bytes - 1) / code_bytes));
      std::vector<std::uint64_t> host(code_bytes / 8 + 1);
      for (std::uint64_t& w : host) w = random();
      std::vector<std::uint8_t> scales(scale_bytes);
      for (std::uint8_t& b : scales) {
        b = static_cast<std::uint8_t>(format == BlockFormat::kMxfp4 ? 116 + random() % 6 : 0x28 + random() % 32);
      }
      std::vector<std::uint8_t*> codes_of, scales_of;
      for (int c = 0; c < copies; ++c) {
        codes_of.push_back(allocate(code_bytes));
        scales_of.push_back(allocate(scale_bytes));
        must(cudaMemcpy(codes_of.back(), c == 0 ? static_cast<const void*>(host.data()) : codes_of[0], code_bytes, cudaMemcpyDefault), "copy");
        must(cudaMemcpy(scales_of.back(), scales.data(), scale_bytes, cudaMemcpyDefault), "copy");
      }
      for (const DType dtype : o.x) {
        for (const ActivationForm form : o.forms) {
          std::vector<std::uint16_t> x(static_cast<std::size_t>(s.m * s.k));
          std::normal_distribution<float> normal;
          for (std::uint16_t& v : x) v = dtype == DType::kF16 ? core::f32_to_f16(normal(random)) : core::f32_to_bf16(normal(random));
          LinearArgs a;
          a.weight.format = format;
          a.weight.rows = s.n;
          a.weight.cols = s.k;
          a.m = s.m;
          a.x_dtype = a.out_dtype = dtype;
          a.activations = form;
          a.weight_settled = true;
          if (form == ActivationForm::kFp4 && format == BlockFormat::kNvfp4) a.x_global_scale = 4.5f / 2688.0f;  // calibrated
          std::uint8_t* const x_device = allocate(2 * x.size());
          std::uint8_t* const out = allocate(static_cast<std::size_t>(2 * s.m * s.n));
          must(cudaMemcpy(x_device, x.data(), 2 * x.size(), cudaMemcpyHostToDevice), "copy");
          a.x = x_device;
          a.out = out;
          const ExecDesc exec{"cuda", stream, 0};
          must(fp4_linear_workspace(a, &a.workspace_bytes, exec), "workspace");
          std::uint8_t* const workspace = allocate(a.workspace_bytes);
          a.workspace = workspace;
          const double t = per_call(copies, o.runs, stream, [&](int i) {
            a.weight.codes = codes_of[static_cast<std::size_t>(i)];
            a.weight.scales = scales_of[static_cast<std::size_t>(i)];
            must(fp4_linear(a, exec), "fp4_linear");
          });
          const double bytes = static_cast<double>(code_bytes + scale_bytes) + 2.0 * static_cast<double>(s.m * (s.k + s.n));
          const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
          const std::string shape = std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
          std::printf("%-6s %-4s %-5s %18s %9.2f %9.0f %6.1f%% %9.1f\n", name_of(format), name_of(form), name_of(dtype), shape.c_str(),
                      1e6 * t, 1e-9 * bytes / t, 100.0 * bytes / t / bandwidth, 1e-12 * flops / t);
          std::fflush(stdout);
          char line[256];
          std::snprintf(line, sizeof line, "%s\n{\"format\": \"%s\", \"form\": \"%s\", \"x\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"bytes\": %.0f}",
                        first ? "" : ",", name_of(format), name_of(form), name_of(dtype), shape.c_str(), 1e6 * t, bytes);
          json += line;
          first = false;
          cudaFree(x_device);
          cudaFree(out);
          cudaFree(workspace);
        }
      }
      for (std::uint8_t* p : codes_of) cudaFree(p);
      for (std::uint8_t* p : scales_of) cudaFree(p);
    }
  }
  json += "]}\n";
  if (!o.json.empty()) {
    std::FILE* f = std::fopen(o.json.c_str(), "w");
    if (f == nullptr || std::fputs(json.c_str(), f) < 0 || std::fclose(f) != 0) {
      std::fprintf(stderr, "cannot write %s\n", o.json.c_str());
      return 1;
    }
  }
}
