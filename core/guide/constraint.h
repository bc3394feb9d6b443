// Constraint: what an answer must look like, as a client writes it.
#pragma once

#include <string>

namespace promptcached::guide {

enum class Syntax {
  kJsonSchema,
  kRegex,  // of Rust's regex crate, over the whole answer
  kLark,   // llguidance's kind of it
};

struct Constraint {
  Syntax syntax = Syntax::kJsonSchema;
  std::string text;
  std::string param;  // the request field it stands in, for errors
};

}  // namespace promptcached::guide
