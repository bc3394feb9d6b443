#include "core/guide/token_bytes.h"

#include <array>
#include <optional>
#include <string_view>

namespace promptcached::guide {
namespace {

// A token that has text of its own wherever it stands, for others to stand behind: at the start of a text some decoders
// strip a token's space.
std::optional<TokenId> find_lead(const Tokenizer& tokenizer, std::int32_t count) {
  for (TokenId id = 0; id < count; ++id) {
    const std::string bytes = tokenizer.decode_bytes({&id, 1});
    if (!bytes.empty() && bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos) {
      return id;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<TokenBytes> token_bytes(const Tokenizer& tokenizer, std::int32_t count) {
  std::vector<TokenBytes> all(static_cast<std::size_t>(count));
  const std::optional<TokenId> lead = find_lead(tokenizer, count);
  const std::string before = lead ? tokenizer.decode_bytes({&*lead, 1}) : std::string();
  for (TokenId id = 0; id < count; ++id) {
    TokenBytes& token = all[static_cast<std::size_t>(id)];
    const std::array<TokenId, 2> pair = {lead.value_or(id), id};
    const auto both = lead ? std::span<const TokenId>(pair) : std::span<const TokenId>(&id, 1);
    const std::string shown = tokenizer.decode_bytes(both);
    if (std::string_view(shown).starts_with(before)) {
      token.bytes = shown.substr(before.size());
    }
    if (token.bytes.empty()) {
      token.bytes = tokenizer.decode_bytes({&id, 1}, /*skip_special=*/false);
      token.is_control = true;
    }
  }
  return all;
}

}  // namespace promptcached::guide
