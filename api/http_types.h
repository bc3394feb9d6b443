// HttpRequest and HttpResponse: what routes see of HTTP. No sockets here; server/http_server.cpp fills and sends them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace promptcached::api {

using Clock = std::chrono::steady_clock;

// Name and value, in the order they came.
using NameValues = std::vector<std::pair<std::string, std::string>>;

// Header names, and values such as transfer codings, are compared without case.
bool same_ignoring_case(std::string_view a, std::string_view b);

// The first of several; nullopt when there is none.
std::optional<std::string_view> find_header(const NameValues& headers, std::string_view name);

// Calls back when the client's connection closes before its response is complete.
class DisconnectWatch {
 public:
  virtual ~DisconnectWatch() = default;  // once it returns, the callback neither runs nor will run
};

// The client's end of the exchange.
class ClientConnection {
 public:
  virtual ~ClientConnection() = default;
  // `gone` is called at most once, from another thread, and must not block.
  virtual std::unique_ptr<DisconnectWatch> watch(std::function<void()> gone) = 0;
};

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string path;    // percent-decoded, without the query
  NameValues query;    // decoded
  NameValues headers;
  std::string body;
  // Reads the body from the client, into `body`: called by the router once the head has been found acceptable, so that
  // a request that will be refused is not read. Errors: kBodyTooLarge, kInvalidField (framing), kCancelled. Empty when
  // `body` is already there.
  std::function<Status(std::string& body)> read_body;
  std::string request_id;                    // the X-Request-Id of the response
  std::string remote_address;                // for logs
  Clock::time_point arrival = Clock::now();  // when the request's last byte had arrived
  ClientConnection* client = nullptr;        // null in tests: nobody disconnects

  std::optional<std::string_view> header(std::string_view name) const { return find_header(headers, name); }
};

// Takes the parts of a streamed response's body.
class BodyWriter {
 public:
  virtual ~BodyWriter() = default;
  // Hands `data` to the socket now. False when the client has gone: nothing more can be written.
  virtual bool write(std::string_view data) = 0;
};

// Either a body or a stream.
struct HttpResponse {
  int status = 200;
  std::string content_type;  // empty: no body
  NameValues headers;
  std::string body;
  // Writes the body part by part after the head has been sent; the response ends when it returns.
  std::function<void(BodyWriter& out)> stream;
  // Called once, when the response has been handed to the socket as a whole (true) or the client had gone (false).
  std::function<void(bool delivered)> sent;
};

}  // namespace promptcached::api
