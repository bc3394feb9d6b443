#include "api/api_keys.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/base/sha256.h"

namespace promptcached::api {
namespace {

constexpr std::size_t kMinKeyLength = 16;
constexpr std::size_t kMaxKeyLength = 200;
constexpr std::size_t kMaxTenantLength = 64;
constexpr std::string_view kTenant = "tenant=";
constexpr std::string_view kNameCharacters = "a letter, a digit or one of - . _ ~ + / =";

unsigned bit(Scope scope) { return 1U << static_cast<unsigned>(scope); }

const unsigned kAllScopes = bit(Scope::kRead) | bit(Scope::kGenerate) | bit(Scope::kWrite);

std::string digest_of(std::string_view key) {
  Sha256 hash;
  hash.update_field("api-key", key);
  return to_hex(hash.digest());
}

bool is_name(std::string_view text, std::size_t min, std::size_t max) {
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
  return text.size() >= min && text.size() <= max && text.find_first_not_of(kAllowed) == std::string_view::npos;
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

// What stands behind a key.
Result<ApiKeys::Holder> ApiKeys::parse_holder(std::istream& words, const std::string& digest) {
  Holder holder;
  for (std::string word; words >> word;) {
    if (word.starts_with(kTenant)) {
      const std::string_view name = std::string_view(word).substr(kTenant.size());
      if (!holder.tenant.empty() || !is_name(name, 1, kMaxTenantLength)) {
        return make_error(
            ErrorCode::kInvalidField,
            "tenant= must stand once, with a name of 1 to 64 characters, each " + std::string(kNameCharacters));
      }
      holder.tenant = "name:" + std::string(name);
      continue;
    }
    const auto known = {Scope::kRead, Scope::kGenerate, Scope::kWrite};
    const auto* const scope = std::find_if(known.begin(), known.end(), [&](Scope s) { return to_string(s) == word; });
    if (scope == known.end()) {
      return make_error(ErrorCode::kInvalidField,
                        "unknown scope '" + word + "' (known: read, generate, write; and tenant=NAME)");
    }
    holder.scopes |= bit(*scope);
  }
  holder.scopes = holder.scopes == 0 ? kAllScopes : holder.scopes;
  holder.tenant = holder.tenant.empty() ? "key:" + digest : holder.tenant;
  return holder;
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
    if (!is_name(key, kMinKeyLength, kMaxKeyLength)) {
      return bad("a key must have 16 to 200 characters, each " + std::string(kNameCharacters));
    }
    std::string digest = digest_of(key);
    Result<Holder> holder = parse_holder(words, digest);
    if (!holder) {
      return bad(holder.error().message);
    }
    if (!keys.holders_.emplace(std::move(digest), std::move(*holder)).second) {
      return bad("the key was given before");
    }
  }
  if (keys.holders_.empty()) {
    return make_error(ErrorCode::kInvalidField, "there is no key in it");
  }
  return keys;
}

Result<std::string> ApiKeys::check(std::optional<std::string_view> authorization, Scope scope) const {
  if (scope == Scope::kOpen) {
    return std::string();
  }
  const std::optional<std::string_view> key = authorization ? bearer(*authorization) : std::nullopt;
  if (!key) {
    return make_error(ErrorCode::kUnauthorized, "an API key is needed: 'Authorization: Bearer KEY'");
  }
  const auto found = holders_.find(digest_of(*key));
  if (found == holders_.end()) {
    return make_error(ErrorCode::kUnauthorized, "the API key is not known");
  }
  if ((found->second.scopes & bit(scope)) == 0) {
    return make_error(ErrorCode::kForbidden, "the API key lacks the scope '" + std::string(to_string(scope)) + "'");
  }
  return found->second.tenant;
}

}  // namespace promptcached::api
