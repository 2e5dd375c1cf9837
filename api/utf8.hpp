// Text of unknown origin: names out of files, paths, what a caller called a back end.
#pragma once

#include <cstddef>
#include <string_view>

namespace fp4pa::api {

/// Bytes of the UTF-8 character that a text begins with; 0 where it is none.
/// @pre the text is not empty
[[nodiscard]] constexpr std::size_t utf8_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i])) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  // The second byte's range keeps out what a shorter form could hold, halves of surrogate pairs, and what is above U+10FFFF.
  const std::size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (size == 0 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return size;
}

/// Puts a question mark in the place of every byte that is not of a UTF-8 character.
/// @param text  ends with a zero byte
constexpr void make_utf8(char* text) noexcept {
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::size_t bytes = utf8_bytes(rest);
    if (bytes == 0) *text = '?';
    text += bytes == 0 ? 1 : bytes;
    rest.remove_prefix(bytes == 0 ? 1 : bytes);
  }
}

}  // namespace fp4pa::api
