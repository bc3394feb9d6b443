// Utf8Assembler: whole characters out of bytes that arrive in pieces.
#pragma once

#include <string>
#include <string_view>

namespace promptcached {

// Cuts a stream of bytes into valid UTF-8. Bytes that can no longer become a character show as U+FFFD at once, one for
// each maximal part of a character, as Unicode recommends and Rust and Python do; so at most 3 bytes are ever held.
class Utf8Assembler final {
 public:
  // The text that `bytes` complete.
  std::string push(std::string_view bytes);
  // The end of the stream: what is held shows as one U+FFFD.
  std::string finish();
  bool pending() const { return !held_.empty(); }

 private:
  std::string held_;  // the start of a character that may still be completed
};

// All of `bytes` as valid UTF-8, with U+FFFD as above.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace promptcached
