// The writer of safetensors.hpp. The header is padded with spaces so that the buffer starts 8-byte aligned, as the
// format's own writers do.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "weights/safetensors.hpp"

namespace fp4pa::safetensors {
namespace {

std::string header_of(const std::vector<TensorToWrite>& tensors, const std::map<std::string, std::string>& metadata) {
  // Ordered, so that the header lists tensors in the order of their bytes.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    std::uint64_t expected = element_bytes(tensor.dtype);
    for (std::int64_t extent : tensor.shape) expected *= static_cast<std::uint64_t>(extent);
    if (element_bytes(tensor.dtype) == 0 || expected != tensor.data.size()) {
      throw Error("cannot write tensor '" + tensor.name + "': " + std::to_string(tensor.data.size()) +
                  " bytes do not fit its shape and dtype " + tensor.dtype);
    }
    if (tensor.name == "__metadata__" || header.contains(tensor.name)) {
      throw Error("cannot write tensor '" + tensor.name + "': the name is taken");
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

void write(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
           const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  const std::filesystem::path partial = path.string() + ".partial";
  {
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
    out.write(length, sizeof length);
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const TensorToWrite& tensor : tensors) {
      out.write(reinterpret_cast<const char*>(tensor.data.data()), static_cast<std::streamsize>(tensor.data.size()));
    }
    out.close();
    if (!out) {
      std::remove(partial.c_str());
      throw Error(path.string() + ": cannot write");
    }
  }
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) {
    std::remove(partial.c_str());
    throw Error(path.string() + ": cannot write: " + error.message());
  }
}

}  // namespace fp4pa::safetensors
