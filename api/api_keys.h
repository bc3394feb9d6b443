// ApiKeys: who may do what, when the server is started with --api-keys.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
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
  // One key a line: `KEY` or `KEY SCOPE... tenant=NAME` with the scopes "read" (list schemas, cache, metrics),
  // "generate" and "write" (change schemas, drop the cache); a key without scopes has all. '#' starts a comment. A key
  // is 16 to 200 characters of A-Z a-z 0-9 - . _ ~ + / =, a tenant's name 1 to 64 of the same. Error kInvalidField
  // naming the line, never the key.
  static Result<ApiKeys> parse(std::string_view text);

  // Whether the holder of `authorization` (the header's value: "Bearer KEY") may use a route that needs `scope`; and
  // then the holder's tenant: those of equal tenants may share what they compute. A key that names none is a tenant of
  // its own, the same after a restart; where no key is needed the tenant is empty.
  // Errors: kUnauthorized (no or unknown key), kForbidden (a key without the scope).
  Result<std::string> check(std::optional<std::string_view> authorization, Scope scope) const;

  std::size_t size() const { return holders_.size(); }

 private:
  struct Holder {
    unsigned scopes = 0;
    std::string tenant;
  };

  static Result<Holder> parse_holder(std::istream& words, const std::string& digest);

  // By digest, so that the time of a look-up says nothing about the keys.
  std::map<std::string, Holder> holders_;
};

}  // namespace promptcached::api
