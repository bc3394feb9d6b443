#include "server/body_reader.h"

#include <string>

#include "tests/unit/server/socket_pair.h"

namespace promptcached::server {
namespace {

constexpr auto kSilence = std::chrono::milliseconds(300);

// The body that `sent` holds when the client sends nothing else.
Status read(const std::string& sent, const BodyFraming& framing, std::size_t max_bytes, std::string& body) {
  const SocketPair pair;
  pair.send(sent);
  pair.finish_sending();
  return read_body(*pair.connection, framing, max_bytes, kSilence, body);
}

std::string chunked_body(const std::string& sent, std::size_t max_bytes = 100) {
  std::string body;
  const Status status = read(sent, {.content_length = 0, .chunked = true}, max_bytes, body);
  if (!status) {
    FAIL(status.error().message);
  }
  return body;
}

Error chunked_error(const std::string& sent, std::size_t max_bytes = 100) {
  std::string body;
  const Status status = read(sent, {.content_length = 0, .chunked = true}, max_bytes, body);
  REQUIRE_FALSE(status.ok());
  return status.error();
}

}  // namespace

TEST_CASE("where a body ends", "[server]") {
  CHECK_FALSE(body_framing({{"Host", "x"}})->has_body());
  CHECK_FALSE(body_framing({{"content-length", "0"}})->has_body());
  CHECK(body_framing({{"Content-Length", "42"}})->content_length == 42);
  CHECK(body_framing({{"Content-Length", "42"}, {"content-length", "42"}})->content_length == 42);
  CHECK(body_framing({{"transfer-encoding", "Chunked"}})->chunked);
  for (const api::NameValues& bad : std::vector<api::NameValues>{
           {{"Content-Length", "-1"}},
           {{"Content-Length", "+1"}},
           {{"Content-Length", "1 "}},
           {{"Content-Length", "0x10"}},
           {{"Content-Length", "1, 1"}},
           {{"Content-Length", ""}},
           {{"Content-Length", "99999999999999999999"}},
           {{"Content-Length", "1"}, {"Content-Length", "2"}},
           {{"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}},
           {{"Transfer-Encoding", "gzip"}},
           {{"Transfer-Encoding", "gzip, chunked"}},
           {{"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}},
       }) {
    CAPTURE(bad);
    CHECK(body_framing(bad).error().code == ErrorCode::kInvalidField);
  }
}

TEST_CASE("a body of known length", "[server]") {
  std::string body;
  CHECK(read("hello, next request", {.content_length = 5}, 5, body).ok());
  CHECK(body == "hello");
  CHECK(read("", {.content_length = 6}, 5, body).error().code == ErrorCode::kBodyTooLarge);
  CHECK(read("hel", {.content_length = 5}, 5, body).error().code == ErrorCode::kCancelled);
  CHECK(read("", {}, 5, body).ok());
  CHECK(body.empty());
}

TEST_CASE("what comes after the body stays for the next request", "[server]") {
  const SocketPair pair;
  pair.send("5\r\nhello\r\n0\r\n\r\nGET /");
  std::string body;
  REQUIRE(read_body(*pair.connection, {.content_length = 0, .chunked = true}, 100, kSilence, body).ok());
  CHECK(body == "hello");
  char next[5];
  pair.connection->limit_reads(100, Connection::Clock::now() + kSilence);
  REQUIRE(pair.connection->read_exactly(next, 5));
  CHECK(std::string(next, 5) == "GET /");
}

TEST_CASE("chunks", "[server]") {
  CHECK(chunked_body("0\r\n\r\n").empty());
  CHECK(chunked_body("3\r\nabc\r\nA;name=value\r\n0123456789\r\n000\r\nTrailer: x\r\nOther: y\r\n\r\n") ==
        "abc0123456789");
  CHECK(chunked_body("3 \nabc\n0\n\n") == "abc");  // bare line feeds, a space behind the size
  CHECK(chunked_body("64\r\n" + std::string(100, 'x') + "\r\n0\r\n\r\n").size() == 100);
}

TEST_CASE("broken chunks", "[server]") {
  for (const char* bad : {"zz\r\n", "\r\n", "-1\r\n", "+1\r\n", "0x1\r\na\r\n", "1\r\nab\r\n0\r\n\r\n", "1g\r\n",
                          "fffffffffffffffff\r\n"}) {
    CAPTURE(bad);
    CHECK(chunked_error(bad).code == ErrorCode::kInvalidField);
  }
  for (const char* cut : {"", "5", "5\r\n", "5\r\nhel", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nTrailer"}) {
    CAPTURE(cut);
    CHECK(chunked_error(cut).code == ErrorCode::kCancelled);
  }
}

TEST_CASE("chunks have limits too", "[server]") {
  CHECK(chunked_error("65\r\n").code == ErrorCode::kBodyTooLarge);
  CHECK(chunked_error("64\r\n" + std::string(100, 'x') + "\r\n1\r\n").code == ErrorCode::kBodyTooLarge);
  CHECK(chunked_error("ffffffffffffffff\r\n").code == ErrorCode::kBodyTooLarge);
  CHECK(chunked_error("1;" + std::string(5000, 'x')).code == ErrorCode::kInvalidField);
  std::string trailers = "0\r\n";
  for (int i = 0; i < 100; ++i) {
    trailers += "X: " + std::string(500, 'y') + "\r\n";
  }
  CHECK(chunked_error(trailers).code == ErrorCode::kInvalidField);
}

TEST_CASE("a body that stops arriving", "[server]") {
  const SocketPair pair;
  pair.send("hel");
  std::string body;
  const auto start = Connection::Clock::now();
  const Status status = read_body(*pair.connection, {.content_length = 5}, 100, std::chrono::milliseconds(50), body);
  CHECK(status.error().code == ErrorCode::kInvalidField);
  CHECK(Connection::Clock::now() - start < std::chrono::seconds(2));
}

}  // namespace promptcached::server
