// ApiKeys: who may do what, when the server is started with --api-keys.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace promptcached::api {

// What a route needs. kOpen needs no key.
enum class Scope { kOpen, kRead, kGenerate, kWrite };
std::string_view to_string(Scope scope);

class ApiKeys final {
 public:
  // One key a line: `KEY` or `KEY SCOPE...` with the scopes "read" (list schemas, cache, metrics), "generate" and
  // "write" (change schemas, drop the cache); a key without scopes has all. '#' starts a comment. A key is 16 to 200
  // characters of A-Z a-z 0-9 - . _ ~ + / =. Error kInvalidField naming the line, never the key.
  static Result<ApiKeys> parse(std::string_view text);

  // Whether the holder of `authorization` (the header's value: "Bearer KEY") may use a route that needs `scope`.
  // Errors: kUnauthorized (no or unknown key), kForbidden (a key without the scope).
  Status check(std::optional<std::string_view> authorization, Scope scope) const;

  std::size_t size() const { return scopes_.size(); }

 private:
  // By digest, so that the time of a look-up says nothing about the keys.
  std::map<std::string, unsigned> scopes_;
};

}  // namespace promptcached::api
