// Text of unknown origin in messages: names out of files, paths, what a caller called a back end.
#pragma once

#include <cstddef>

namespace fp4pa::api {

/// Bytes of the UTF-8 character that a text begins with; 0 where it is none. The text ends with a zero byte and is not empty.
[[nodiscard]] constexpr std::size_t utf8_bytes(const char* text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  // The second byte's range keeps out what a shorter form could hold, halves of surrogate pairs, and what is above U+10FFFF.
  const std::size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (size == 0 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {  // no further than the zero byte, which is not in the range
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return size;
}

/// Puts a question mark in the place of every byte that is not of a UTF-8 character.
constexpr void make_utf8(char* text) noexcept {
  while (*text != '\0') {
    const std::size_t bytes = utf8_bytes(text);
    if (bytes == 0) *text = '?';
    text += bytes == 0 ? 1 : bytes;
  }
}

}  // namespace fp4pa::api
