// See mapped_file.hpp. An empty file is an empty span: mmap refuses a length of zero.
#include "weights/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace fp4pa::safetensors {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused below, not waited for
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "cannot open");
  // The mapping outlives the descriptor, which is closed on every way out of here.
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } const closer{descriptor};

  struct stat info {};
  if (::fstat(descriptor, &info) != 0) throw std::system_error(errno, std::generic_category(), "cannot stat");
  if (!S_ISREG(info.st_mode)) throw std::system_error(EINVAL, std::generic_category(), "not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace fp4pa::safetensors
