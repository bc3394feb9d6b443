// What each token adds to a text, as the stream decoder shows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace promptcached::guide {

struct TokenBytes {
  std::string bytes;        // in the middle of a text; of a control token, its spelling; empty: nothing
  bool is_control = false;  // not shown in an answer's text
};

// By id, of the first `count` tokens.
std::vector<TokenBytes> token_bytes(const Tokenizer& tokenizer, std::int32_t count);

}  // namespace promptcached::guide
