#include "api/api_keys.h"

#include <algorithm>
#include <sstream>

#include "core/base/sha256.h"

namespace promptcached::api {
namespace {

constexpr std::size_t kMinKeyLength = 16;
constexpr std::size_t kMaxKeyLength = 200;

unsigned bit(Scope scope) { return 1U << static_cast<unsigned>(scope); }

const unsigned kAllScopes = bit(Scope::kRead) | bit(Scope::kGenerate) | bit(Scope::kWrite);

std::string digest_of(std::string_view key) {
  Sha256 hash;
  hash.update_field("api-key", key);
  return to_hex(hash.digest());
}

bool is_key(std::string_view text) {
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
  return text.size() >= kMinKeyLength && text.size() <= kMaxKeyLength &&
         text.find_first_not_of(kAllowed) == std::string_view::npos;
}

// The key of "Bearer KEY"; the scheme's name is compared without case (RFC 9110).
std::optional<std::string_view> bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) {
    return std::nullopt;
  }
  const bool same = std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                               [](char expected, char c) { return expected == (c >= 'A' && c <= 'Z' ? c + 32 : c); });
  if (!same) {
    return std::nullopt;
  }
  authorization.remove_prefix(kScheme.size());
  const auto first = authorization.find_first_not_of(' ');
  return first == std::string_view::npos ? std::nullopt : std::optional(authorization.substr(first));
}

}  // namespace

std::string_view to_string(Scope scope) {
  switch (scope) {
    case Scope::kOpen:
      return "open";
    case Scope::kRead:
      return "read";
    case Scope::kGenerate:
      return "generate";
    case Scope::kWrite:
      return "write";
  }
  return "write";
}

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  ApiKeys keys;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto bad = [number](const std::string& what) {
      return make_error(ErrorCode::kInvalidField, "line " + std::to_string(number) + ": " + what);
    };
    std::istringstream words(line.substr(0, line.find('#')));
    std::string key;
    if (!(words >> key)) {
      continue;
    }
    if (!is_key(key)) {
      return bad("a key must have 16 to 200 characters, each a letter, a digit or one of - . _ ~ + / =");
    }
    unsigned scopes = 0;
    for (std::string word; words >> word;) {
      const auto known = {Scope::kRead, Scope::kGenerate, Scope::kWrite};
      const auto* const scope = std::find_if(known.begin(), known.end(), [&](Scope s) { return to_string(s) == word; });
      if (scope == known.end()) {
        return bad("unknown scope '" + word + "' (known: read, generate, write)");
      }
      scopes |= bit(*scope);
    }
    if (!keys.scopes_.emplace(digest_of(key), scopes == 0 ? kAllScopes : scopes).second) {
      return bad("the key was given before");
    }
  }
  if (keys.scopes_.empty()) {
    return make_error(ErrorCode::kInvalidField, "there is no key in it");
  }
  return keys;
}

Status ApiKeys::check(std::optional<std::string_view> authorization, Scope scope) const {
  if (scope == Scope::kOpen) {
    return {};
  }
  const std::optional<std::string_view> key = authorization ? bearer(*authorization) : std::nullopt;
  if (!key) {
    return make_error(ErrorCode::kUnauthorized, "an API key is needed: 'Authorization: Bearer KEY'");
  }
  const auto found = scopes_.find(digest_of(*key));
  if (found == scopes_.end()) {
    return make_error(ErrorCode::kUnauthorized, "the API key is not known");
  }
  if ((found->second & bit(scope)) == 0) {
    return make_error(ErrorCode::kForbidden, "the API key lacks the scope '" + std::string(to_string(scope)) + "'");
  }
  return {};
}

}  // namespace promptcached::api
