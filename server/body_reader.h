// Reading a request's body: how long it is, and its bytes, within a limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "api/http_types.h"
#include "core/base/status.h"
#include "server/connection.h"

namespace promptcached::server {

// Where the body ends (RFC 9112, section 6).
struct BodyFraming {
  std::uint64_t content_length = 0;
  bool chunked = false;
  bool has_body() const { return chunked || content_length > 0; }
};

// Strict: whatever two servers could read differently is refused (kInvalidField), since a proxy in front might be the
// other one. A request with neither header has no body.
Result<BodyFraming> body_framing(const api::NameValues& headers);

// Appends the body to `body`. `silence`: the longest time without a byte. Errors: kBodyTooLarge, as soon as it is
// known; kInvalidField for broken chunks and bodies that stop arriving; kCancelled when the client has gone.
Status read_body(Connection& connection, const BodyFraming& framing, std::size_t max_bytes,
                 std::chrono::milliseconds silence, std::string& body);

}  // namespace promptcached::server
