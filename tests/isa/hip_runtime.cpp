// A HIP runtime whose device is the interpreter of machine.hpp: what the library and its tests call of libamdhip64, to be
// preloaded before it. Streams are in order with everything; a failing launch says why and is reported by the next call.
#include <hip/hip_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/isa/machine.hpp"

namespace {

/// Device memory is the host's, with its bounds known.
class Allocations : public isa::Memory {
 public:
  void check(std::uint64_t address, std::size_t bytes, bool write) const override {
    auto it = own.upper_bound(address);
    if (it != own.begin() && address + bytes <= (--it)->first + it->second) return;
    if (!write) {
      for (const auto& [begin, size] : readable) {
        if (address >= begin && address + bytes <= begin + size) return;
      }
    }
    char text[120];
    std::snprintf(text, sizeof text, "%s of %zu bytes at 0x%llx outside of every allocation", write ? "a store" : "a load", bytes,
                  static_cast<unsigned long long>(address));
    throw std::runtime_error(text);
  }
  std::map<std::uint64_t, std::size_t> own;
  std::map<std::uint64_t, std::size_t> readable;  // arguments and code
};

struct Module {
  const std::uint8_t* bundle;
  std::unique_ptr<isa::CodeObject> code;
};
struct Function {
  Module* module;
  std::string name;
  std::size_t dynamic_lds = 64 << 10;  // as much as a launch may ask for
};

struct State {
  std::mutex mutex;
  Allocations memory;
  std::map<const void*, Function> functions;
  hipError_t last = hipSuccess;
  struct Count {
    std::uint64_t launches = 0;
    isa::Counts instructions;
  };
  std::map<std::string, Count> counts;
};
State& state() {
  static State* const kState = new State;  // outlives the destructors that still call here
  return *kState;
}

hipError_t noted(hipError_t e) {
  if (e != hipSuccess) state().last = e;
  return e;
}

/// gfx950's part of a bundle of code objects.
std::vector<std::uint8_t> code_object(const std::uint8_t* bundle) {
  constexpr char kMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
  if (std::memcmp(bundle, kMagic, sizeof kMagic - 1) != 0) throw std::runtime_error("not a bundle of code objects");
  std::uint64_t count;
  std::memcpy(&count, bundle + 24, 8);
  const std::uint8_t* at = bundle + 32;
  for (std::uint64_t n = 0; n < count; ++n) {
    std::uint64_t field[3];
    std::memcpy(field, at, sizeof field);
    const std::string target(reinterpret_cast<const char*>(at + 24), field[2]);
    if (target.find("gfx950") != std::string::npos) return {bundle + field[0], bundle + field[0] + field[1]};
    at += 24 + field[2];
  }
  throw std::runtime_error("no code object for gfx950");
}

/// FP4PA_ISA_REPORT: what was executed, at the program's end; instructions are of all waves.
struct Report {
  ~Report() {
    if (std::getenv("FP4PA_ISA_REPORT") == nullptr) return;
    for (const auto& [name, count] : state().counts) {
      const auto of = [&](isa::Unit u) { return static_cast<unsigned long long>(count.instructions[u]); };
      std::printf("executed %8llu launches %12llu vector %10llu matrix %10llu lds %10llu memory %12llu scalar  %s",
                  static_cast<unsigned long long>(count.launches), of(isa::Unit::kVector), of(isa::Unit::kMatrix), of(isa::Unit::kLds),
                  of(isa::Unit::kMemory), of(isa::Unit::kScalar), name.c_str());
      for (const auto& [matrix, times] : count.instructions.of_matrix) {
        std::printf("  %llu %s", static_cast<unsigned long long>(times), matrix.c_str());
      }
      std::printf("\n");
    }
  }
} report;

int number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void** __hipRegisterFatBinary(const void* data) {
  struct Wrapper {
    std::uint32_t magic, version;
    const std::uint8_t* bundle;
    void* unused;
  };
  return reinterpret_cast<void**>(new Module{static_cast<const Wrapper*>(data)->bundle, nullptr});
}
EXPORT void __hipUnregisterFatBinary(void**) {}
EXPORT void __hipRegisterFunction(void** module, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*, int*) {
  state().functions[host] = {reinterpret_cast<Module*>(module), name, 64 << 10};
}
EXPORT void __hipRegisterVar(void**, void*, char*, const char*, int, std::size_t, int, int) {}

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  hipStream_t stream;
};
static thread_local Configuration pushed;
EXPORT hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, hipStream_t stream) {
  pushed = {grid, block, shared, stream};
  return hipSuccess;
}
EXPORT hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, hipStream_t* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *stream = pushed.stream;
  return hipSuccess;
}

EXPORT hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return hipSuccess;
}
EXPORT hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
EXPORT hipError_t hipSetDevice(int) { return hipSuccess; }
EXPORT hipError_t hipGetDeviceProperties(hipDeviceProp_t* p, int) {
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "ISA interpreter");
  const char* const named = std::getenv("FP4PA_ISA_ARCHITECTURE");  // for what is decided before anything is launched
  std::snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s:sramecc+:xnack-", named != nullptr ? named : "gfx950");
  p->multiProcessorCount = number("FP4PA_ISA_COMPUTE_UNITS", 3);
  p->sharedMemPerBlock = static_cast<std::size_t>(number("FP4PA_ISA_LDS", 160 * 1024));
  p->maxSharedMemoryPerMultiProcessor = p->sharedMemPerBlock;
  p->warpSize = 64;
  p->maxThreadsPerBlock = 1024;
  return hipSuccess;
}
EXPORT hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*pointer == nullptr) return noted(hipErrorOutOfMemory);
  std::memset(*pointer, 0xba, bytes);
  state().memory.own[reinterpret_cast<std::uint64_t>(*pointer)] = bytes;
  return hipSuccess;
}
EXPORT hipError_t hipFree(void* pointer) {
  if (pointer == nullptr) return hipSuccess;
  const std::lock_guard lock(state().mutex);
  if (state().memory.own.erase(reinterpret_cast<std::uint64_t>(pointer)) == 0) return noted(hipErrorInvalidValue);
  std::free(pointer);
  return hipSuccess;
}
EXPORT hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  std::memcpy(to, from, bytes);
  return hipSuccess;
}
EXPORT hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind, hipStream_t) {
  std::memcpy(to, from, bytes);
  return hipSuccess;
}
EXPORT hipError_t hipMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return hipSuccess;
}
EXPORT hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t) {
  std::memset(to, value, bytes);
  return hipSuccess;
}
EXPORT hipError_t hipStreamCreate(hipStream_t* stream) {
  *stream = nullptr;
  return hipSuccess;
}
EXPORT hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) { return hipStreamCreate(stream); }
EXPORT hipError_t hipStreamDestroy(hipStream_t) { return hipSuccess; }
EXPORT hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
EXPORT hipError_t hipDeviceSynchronize() { return hipSuccess; }

// Everything has ended when a call returns: an event is the time at which it was recorded.
using Clock = std::chrono::steady_clock;
EXPORT hipError_t hipEventCreate(hipEvent_t* event) {
  *event = reinterpret_cast<hipEvent_t>(new Clock::time_point());
  return hipSuccess;
}
EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) { return hipEventCreate(event); }
EXPORT hipError_t hipEventDestroy(hipEvent_t event) {
  delete reinterpret_cast<Clock::time_point*>(event);
  return hipSuccess;
}
EXPORT hipError_t hipEventRecord(hipEvent_t event, hipStream_t) {
  *reinterpret_cast<Clock::time_point*>(event) = Clock::now();
  return hipSuccess;
}
EXPORT hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
EXPORT hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
  *milliseconds = std::chrono::duration<float, std::milli>(*reinterpret_cast<Clock::time_point*>(stop) - *reinterpret_cast<Clock::time_point*>(start)).count();
  return hipSuccess;
}

EXPORT hipError_t hipGetLastError() {
  const hipError_t e = state().last;
  state().last = hipSuccess;
  return e;
}
EXPORT const char* hipGetErrorName(hipError_t e) { return e == hipSuccess ? "hipSuccess" : "hipError"; }
EXPORT const char* hipGetErrorString(hipError_t e) { return e == hipSuccess ? "no error" : "error of the ISA interpreter"; }

EXPORT hipError_t hipFuncSetAttribute(const void* host, hipFuncAttribute attribute, int value) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.functions.find(host);
  if (found == s.functions.end()) return noted(hipErrorInvalidDeviceFunction);
  if (attribute != hipFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 160 << 10) return noted(hipErrorInvalidValue);
  found->second.dynamic_lds = static_cast<std::size_t>(value);
  return hipSuccess;
}
EXPORT hipError_t hipLaunchKernel(const void* host, dim3 blocks, dim3 threads, void** arguments, std::size_t shared, hipStream_t) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.functions.find(host);
  if (found == s.functions.end()) return noted(hipErrorInvalidDeviceFunction);
  Module* const module = found->second.module;
  const std::string& name = found->second.name;
  if (shared > found->second.dynamic_lds) return noted(hipErrorInvalidValue);
  try {
    if (module->code == nullptr) {
      module->code = std::make_unique<isa::CodeObject>(code_object(module->bundle));
      const std::vector<std::uint8_t>& image = module->code->image();
      s.memory.readable[reinterpret_cast<std::uint64_t>(image.data())] = image.size();
    }
    const isa::Kernel& kernel = module->code->kernel(name);
    const std::uint32_t bytes = kernel.kernarg_bytes;
    std::vector<std::uint64_t> copy((bytes + 7) / 8);
    for (std::size_t a = 0; a < kernel.arguments.size(); ++a) {
      const auto& [offset, size] = kernel.arguments[a];
      std::memcpy(reinterpret_cast<std::uint8_t*>(copy.data()) + offset, arguments[a], size);
    }
    const auto at = reinterpret_cast<std::uint64_t>(copy.data());
    s.memory.readable[at] = bytes;
    const isa::Counts instructions = isa::run(*module->code, name, {{blocks.x, blocks.y, blocks.z}, {threads.x, threads.y, threads.z}, static_cast<std::uint32_t>(shared)},
             copy.data(), s.memory);
    s.memory.readable.erase(at);
    ++s.counts[name].launches;
    s.counts[name].instructions += instructions;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return noted(hipErrorLaunchFailure);
  }
  return hipSuccess;
}
