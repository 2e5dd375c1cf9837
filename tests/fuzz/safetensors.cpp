// libFuzzer target: the safetensors reader on arbitrary bytes. It may refuse, by its own exception, and nothing else;
// what it accepts must keep the promises of the header: ranges inside the buffer that tile it.
#include "weights/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace st = fp4pa::safetensors;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  st::Contents contents;
  try {
    contents = st::parse(bytes);
  } catch (const st::Error&) {
    return 0;
  }
  std::size_t covered = 0;
  for (const st::TensorView& tensor : contents.tensors) {
    const std::size_t each = st::element_bytes(tensor.dtype);
    if (each != 0 && tensor.data.size() != static_cast<std::size_t>(tensor.elements()) * each) std::abort();
    if (!tensor.data.empty() &&
        (tensor.data.data() < bytes.data() || tensor.data.data() + tensor.data.size() > bytes.data() + bytes.size())) {
      std::abort();
    }
    covered += tensor.data.size();
  }
  if (covered > size) std::abort();
  return 0;
}
