#include "server/body_reader.h"

#include <algorithm>
#include <charconv>

namespace promptcached::server {
namespace {

constexpr std::size_t kChunkLine = 1024;      // a chunk's size and whatever extensions stand behind it
constexpr std::size_t kTrailers = 16 * 1024;  // all of them
constexpr std::size_t kPiece = 256 * 1024;    // memory is touched as bytes arrive, not as they are announced

Error framing_error(std::string message) { return make_error(ErrorCode::kInvalidField, std::move(message)); }

Error too_large(std::size_t max_bytes) {
  return make_error(ErrorCode::kBodyTooLarge, "the body is larger than " + std::to_string(max_bytes) + " bytes");
}

Error read_error(const Connection& connection) {
  if (connection.read_failure() == Connection::ReadFailure::kTimeout) {
    return framing_error("the body stopped arriving");
  }
  return make_error(ErrorCode::kCancelled, "the client closed the connection while sending the body");
}

std::optional<std::uint64_t> parse_number(std::string_view text, int base) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

// Reads with a fresh time limit for every piece.
class BodySource final {
 public:
  BodySource(Connection& connection, std::chrono::milliseconds silence) : connection_(connection), silence_(silence) {}

  bool append(std::uint64_t count, std::string& body) {
    while (count > 0) {
      const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(count, kPiece));
      const std::size_t begin = body.size();
      body.resize(begin + piece);
      std::size_t got = 0;
      while (got < piece) {
        renew(piece);
        const std::size_t bytes = connection_.read(body.data() + begin + got, piece - got);
        if (bytes == 0) {
          return false;
        }
        got += bytes;
      }
      count -= piece;
    }
    return true;
  }

  // Up to a line feed, which is left out, as is a carriage return before it. Nullopt: failed, or too long.
  std::optional<std::string> line(std::size_t max_bytes) {
    std::string text;
    renew(max_bytes);
    for (char c = 0; text.size() < max_bytes; text += c) {
      if (connection_.read(&c, 1) == 0) {
        return std::nullopt;
      }
      if (c == '\n') {
        if (!text.empty() && text.back() == '\r') {
          text.pop_back();
        }
        return text;
      }
    }
    return std::nullopt;
  }

 private:
  void renew(std::size_t bytes) { connection_.limit_reads(bytes + 1, Connection::Clock::now() + silence_); }

  Connection& connection_;
  const std::chrono::milliseconds silence_;
};

Error line_error(const Connection& connection) {
  const auto failure = connection.read_failure();
  const bool line_too_long = failure == Connection::ReadFailure::kNone || failure == Connection::ReadFailure::kLimit;
  return line_too_long ? framing_error("a line of the chunked body is too long") : read_error(connection);
}

Status skip_trailers(const Connection& connection, BodySource& source) {
  for (std::size_t left = kTrailers; left > 0;) {
    const auto line = source.line(left);
    if (!line) {
      return line_error(connection);
    }
    if (line->empty()) {
      return {};
    }
    left -= std::min(left, line->size() + 1);
  }
  return framing_error("the chunked body's trailers are too long");
}

Status read_chunks(const Connection& connection, BodySource& source, std::size_t max_bytes, std::string& body) {
  for (;;) {
    const auto line = source.line(kChunkLine);
    if (!line) {
      return line_error(connection);
    }
    std::string_view digits = std::string_view(*line).substr(0, line->find(';'));
    digits = digits.substr(0, digits.find_last_not_of(" \t") + 1);
    const auto size = parse_number(digits, 16);
    if (!size) {
      return framing_error("a chunk of the body has no valid size");
    }
    if (*size == 0) {
      return skip_trailers(connection, source);
    }
    if (*size > max_bytes - body.size()) {
      return too_large(max_bytes);
    }
    if (!source.append(*size, body)) {
      return read_error(connection);
    }
    const auto end = source.line(kChunkLine);
    if (!end) {
      return line_error(connection);
    }
    if (!end->empty()) {
      return framing_error("a chunk of the body is longer than its size says");
    }
  }
}

}  // namespace

Result<BodyFraming> body_framing(const api::NameValues& headers) {
  BodyFraming framing;
  bool has_length = false;
  for (const auto& [name, value] : headers) {
    if (api::same_ignoring_case(name, "Transfer-Encoding")) {
      if (framing.chunked || !api::same_ignoring_case(value, "chunked")) {
        return framing_error("Transfer-Encoding must be 'chunked'");
      }
      framing.chunked = true;
    } else if (api::same_ignoring_case(name, "Content-Length")) {
      const auto length = parse_number(value, 10);
      if (!length) {
        return framing_error("Content-Length is not a number");
      }
      if (has_length && *length != framing.content_length) {
        return framing_error("Content-Length is given twice, with different values");
      }
      framing.content_length = *length;
      has_length = true;
    }
  }
  if (framing.chunked && has_length) {
    return framing_error("Content-Length and Transfer-Encoding exclude each other");
  }
  return framing;
}

Status read_body(Connection& connection, const BodyFraming& framing, std::size_t max_bytes,
                 std::chrono::milliseconds silence, std::string& body) {
  body.clear();
  BodySource source(connection, silence);
  if (framing.chunked) {
    return read_chunks(connection, source, max_bytes, body);
  }
  if (framing.content_length > max_bytes) {
    return too_large(max_bytes);
  }
  body.reserve(framing.content_length);  // pages that nothing arrives for stay untouched
  if (!source.append(framing.content_length, body)) {
    return read_error(connection);
  }
  return {};
}

}  // namespace promptcached::server
