// Reading and writing safetensors: eight bytes of header length, a JSON header, then the tensors' bytes.
//
// Files come from strangers, so the reader trusts nothing: the length is checked against the file and against the
// format's limit, the JSON against its grammar (duplicate names are refused, as the format says), every size against its
// shape without overflow, and the byte ranges must tile the buffer exactly, with no overlap and no hole. A dtype outside
// of the known set says nothing about sizes: such a tensor's range is checked, and the tensor refused only where it is
// asked for. Nothing is kept of a header but what describes a tensor, so that the memory it takes stays in proportion to its
// bytes; where there is none, that is std::bad_alloc. Every error names the value that offended. Source: the safetensors
// format description (huggingface/safetensors, README "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "weights/mapped_file.hpp"

namespace fp4pa::safetensors {

/// The format's own limit on the header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
/// Extents of a tensor. The format has no limit; frameworks stop at 64 or below.
inline constexpr std::size_t kMaxRank = 64;
/// Bytes of a name or a value that go into a message.
inline constexpr std::size_t kMaxShown = 80;

/// What is wrong with the file, in one sentence.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A name as it goes into a message: quoted, cut, and with control bytes shown, so that a hostile name cannot forge lines.
[[nodiscard]] std::string shown(std::string_view text);
/// "[2,3]".
[[nodiscard]] std::string text_of(std::span<const std::int64_t> numbers);

/// Bytes of one element of a dtype by its name in the format ("F32", "BF16", ...); 0 when it is not in the known set.
[[nodiscard]] std::size_t element_bytes(std::string_view dtype) noexcept;
/// The known set, for messages.
[[nodiscard]] std::string known_dtypes();

/// A tensor inside a file's buffer. No alignment is promised.
struct TensorView {
  std::string name;
  std::string dtype;  ///< outside of the known set, `data` need not be what `shape` takes
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  [[nodiscard]] std::int64_t elements() const noexcept;
};

/// A parsed buffer; views point into it.
struct Contents {
  std::map<std::string, std::string> metadata;
  std::vector<TensorView> tensors;  ///< in the order of their offsets
};

/// Parses a whole file's bytes, which must outlive the result. Throws Error.
[[nodiscard]] Contents parse(std::span<const std::byte> bytes);

/// A mapped and parsed file.
class File {
 public:
  /// Throws Error; the message starts with the path.
  explicit File(const std::filesystem::path& path);
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return contents_.metadata; }
  [[nodiscard]] const std::vector<TensorView>& tensors() const noexcept { return contents_.tensors; }
  /// The tensor called `name`. Throws Error naming those that exist, or the dtype if it is not in the known set.
  [[nodiscard]] const TensorView& at(const std::string& name) const;
  /// The same, or null, whatever its dtype.
  [[nodiscard]] const TensorView* find(std::string_view name) const noexcept;
  /// For messages: the names of the first tensors, or "none".
  [[nodiscard]] std::string names() const;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  Contents contents_;
};

/// A tensor to be written; `data` must hold exactly its elements.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes a file through a temporary name of its own beside it, so that neither a failure nor another writer leaves a half-written file.
/// A symbolic link is followed; what exists and is no regular file is refused. Throws Error.
void write(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
           const std::map<std::string, std::string>& metadata);

}  // namespace fp4pa::safetensors
